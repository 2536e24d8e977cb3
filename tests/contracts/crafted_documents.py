"""Documents of model files that somebody changed on purpose, in files whose checksum is right."""

import json
from collections.abc import Callable
from typing import Any

from hetcal.model_files.schema import FORMAT_VERSION as V
from tests.model_files.samples import CHECKSUM, Craft, Parts, dumps, seal, split

# --- Documents of a regressor: key and value, all else right ---------------------------------------------------------
QUANTILE = {"name": "quantile", "knots": [0.0, 1.0], "scores": [0.0, 1.0], "slopes": [1.0, 1.0, 1.0]}
TEXT = {"name": "x0", "kind": "text", "labels": ["a", "b"], "has_rare": False}
SCALE = {"magnitude": 1.0, "center": 0.0, "spread": 1.0}
DATES = {"name": "x0", "kind": "dates", "range": [0.0, 1.0], "features": [{**SCALE, "has_missing": False}] * 7}
CHANGES: list[tuple[str, Any]] = [
    *(("kind", value) for value in ("classifier", "os.system", "Regressor", None, 1)),
    *(
        ("settings/estimator", name)
        for name in ("os.system", "builtins.eval", "__import__", "eval", "", "own", 5, None)
    ),
    *(("settings/objective", name) for name in ("subprocess.run", "exec", "own", ["nll"])),
    *(("settings/network", value) for value in ("own", "torch.nn.Linear", {"class": "torch.nn.Linear"}, 3)),
    *(("settings/family", value) for value in ("cauchy", "hetcal.families.StudentT", {"student_t": 4.0})),
    *(("settings/family", {"name": "student_t", "df": df}) for df in (1.0, None, float("inf"), [4.0, 5.0], "4")),
    ("settings/family", {"name": "gaussian", "df": 4.0}),
    *(("settings/width", value) for value in (0, -1, 5, 4.0, "4", True, None, 10**9, 2**70, 10**4000, float("nan"))),
    *(("settings/depth", value) for value in (0, 2, 4_000, 10**9, 10**30, [1])),
    *(("settings/dropout", value) for value in (0.0, 1.0, -0.1, float("inf"))),
    *(("settings/estimator_options", {"members": value}) for value in (10**9, 3)),
    *(("settings/estimator_options", {"prediction_samples": value}) for value in (10**12, 0, 1, "100", 1e12)),
    *(("settings/estimator_options", {"std_floor": value}) for value in (1e308, 1e7, 0.0, -1.0)),
    *(("settings/estimator_options", {name: 10**12}) for name in ("samples", "rate", "n_levels")),
    *(
        ("settings/estimator_options", {name: 1})
        for name in ("__class__", "__init__", "self", "network", "seed", "x y")
    ),
    *(("settings/estimator_options", value) for value in ({"rate": {"a": 1}}, {"rate": [[1]]}, [["rate", 0.1]])),
    ("settings/estimator_options", {f"a{i}": 0 for i in range(100_000)}),
    ("settings/learning_rate", 0.0),
    ("settings/learning_rate", float("nan")),
    ("settings/batch_size", 0),
    ("settings/target_transform", "exp"),
    ("settings/column_order", "by_chance"),
    *(("settings/random_state", value) for value in (-1, 2**32, "0", 0.5)),
    ("settings/device", "cuda"),
    *((f"settings/{key}", 1) for key in ("__class__", "__dict__", "__reduce__", "progress", "unknown", "a\nb\x00")),
    *(("seed", value) for value in (-1, 2**32, 1.5, None)),
    ("has_names", 1),
    *(("columns", value) for value in ([], {}, None, "x0", [TEXT, TEXT])),
    ("columns/0/name", "x1"),
    ("columns/0/name", 5),
    ("columns/0/kind", "images"),
    ("columns/0/kind", "dates"),
    ("columns/0/features", []),
    ("columns/0/range", [1.0, 0.0]),
    ("columns/0/range", [0.0]),
    *(("columns/0", {**DATES, "range": ends}) for ends in ([0.0, 1e300], [-2e8, 0.0])),
    *(("columns/0/features/0/spread", value) for value in (0.0, -1.0, float("nan"), float("inf"), "1", 1e9)),
    *(("columns/0/features/0/magnitude", value) for value in (0.0, -2.0)),
    ("columns/0/features/0/center", 1e300),
    ("columns/0/features/0/has_missing", None),
    ("columns/0/features/0/has_missing", True),
    *(
        ("columns/0", {**TEXT, "labels": labels})
        for labels in ([1, 2], ["b", "a"], ["a", "a"], [], [None], ["a"] * 2000)
    ),
    ("columns/0", TEXT),
    ("columns/0", {**TEXT, "has_rare": 1}),
    *(("target/scales", value) for value in ([], [None], {})),
    ("target/scales/0/spread", 0.0),
    ("target/transforms", []),
    *(("target/transforms", [value]) for value in ({"name": "exp"}, {"name": "log", "base": 2}, None, {})),
    ("target/transforms", [{"name": "log"}, {"name": "log"}]),
    ("target/transforms", [{"name": "yeo-johnson", "magnitude": 1.0, "center": 0.0, "spread": 1.0, "power": 3.0}]),
    *(("target/transforms", [{**QUANTILE, "knots": knots}]) for knots in ([1.0, 0.0], [0.0, 0.0], [0.0], [])),
    *(("target/transforms", [{**QUANTILE, "slopes": slopes}]) for slopes in ([1.0, 0.0, 1.0], [1.0], [1.0, -1.0, 1.0])),
    ("target/transforms", [{**QUANTILE, "scores": [1.0, 0.0]}]),
]
RECALIBRATION = {"method": "std", "rows": 9, "factor": 2.0, "pit": [0.0, 0.5, 1.0], "probability": [0.0, 0.6, 1.0]}
CHANGES += [
    *(("recalibration", value) for value in ([], {}, "std", {**RECALIBRATION, "extra": 1})),
    *(("recalibration", {**RECALIBRATION, "method": value}) for value in ("eval", "platt", None, 1)),
    *(("recalibration", {**RECALIBRATION, "rows": value}) for value in (0, -1, 2.5, "9", None)),
    *(
        ("recalibration", {**RECALIBRATION, "factor": value})
        for value in (0.0, -1.0, 1e308, 1e-300, float("nan"), float("inf"), "2", None)
    ),
    *(
        ("recalibration", {**RECALIBRATION, key: value})
        for key in ("pit", "probability")
        for value in ([], [0.0], [0.0, 1.0], [0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.9], [0.1, 0.5, 1.0], [0.0, 1e-320, 1.0])
    ),
    ("recalibration", {**RECALIBRATION, "pit": [i / 4000 for i in range(4001)]}),
]
# --- Documents of the default, whose members hold out rows -----------------------------------------------------------
ATOMS = {"values": [0.0, 1.0], "lower": ["-inf", 0.5], "upper": [0.5, "inf"]}
MEMBER_CHANGES: list[tuple[str, Any]] = [
    *(
        ("members", value)
        for value in (
            None,
            [],
            12,
            {"groups": 2},
            {"groups": 2, "parts": 4, "width": 4, "nodes": [1, 1, 1], "rate": 0.1},
        )
    ),
    *(("members/groups", value) for value in (0, 1, 3, 16, 10**9, 2**70, 2.0, "2", True, None, -2)),
    *(("members/width", value) for value in (0, 7, 97, 10**9, 2**70, 16.0, "16", True, None, -16)),
    *(("members/nodes", value) for value in (64, [], [64, 1], [64, 1, 1, 1], "64", None)),
    *(
        (f"members/nodes/{kind}", value)
        for kind in range(3)
        for value in (0, 10, 2**24, 2**25, 2**70, 64.0, "64", None, -1)
    ),
    *(("members/parts", value) for value in (0, 2, 3, 5, 16, 17, 10**9, 4.0, "4", -4)),
    *(("settings/width", value) for value in (3, 22_000, 10**9)),
    *(("settings/depth", value) for value in (None, 2, 400, 10**9)),
    *(("settings/estimator", name) for name in ("ensemble", "mc_dropout", "variance_head", "cross_ensembles", "own")),
    *(("settings/estimator_options", {"members": value}) for value in (1, 12, 10**9)),
    *(("settings/estimator_options", {name: 1}) for name in ("n_groups", "n_parts", "networks", "n_numbers")),
    *(
        (f"settings/{name}", value)
        for name, value in (("patience", 3), ("input_noise", 1.0), ("objective_weight", 0.5))
    ),
    *(("settings/max_seconds", value) for value in (0.0, -1.0, float("nan"), "60", float("inf"))),
    *(("settings/objective", name) for name in ("own", "eval", 0)),
    ("settings/network", "own"),
    *(("target/atoms", value) for value in ([], {}, 5, {**ATOMS, "draws": [0.5]}, {"values": [0.0]})),
    *(
        ("target/atoms", {**ATOMS, "values": v})
        for v in ([1.0, 0.0], [0.0, 0.0], [0.0], [], [0.0, float("inf")], [0.0] * 10**5)
    ),
    *(
        ("target/atoms", {**ATOMS, "lower": v})
        for v in (["-inf", 0.4], ["inf", 0.5], [0.7, 0.6], [0.5], ["-inf", "nan"], [None, 0.5])
    ),
    *(
        ("target/atoms", {**ATOMS, "upper": v})
        for v in ([0.5, "-inf"], ["inf", "inf"], [0.5, 0.2], [0.5, "os.system"], [0.5, float("inf")])
    ),
    ("columns/0", {"name": "x0", "kind": "text", "labels": ["a"], "has_rare": False}),  # as many inputs, fewer numbers
]
# --- Documents of a classifier ---------------------------------------------------------------------------------------
CLASS_CHANGES: list[tuple[str, Any]] = [
    ("settings/estimator", "ensemble"),
    ("settings/likelihood", "eval"),
    ("settings/objective", "nll"),
    ("target", {"scales": [], "transforms": None, "atoms": None}),
    ("members", {"groups": 2, "parts": 4, "width": 4, "nodes": [64, 1, 1]}),
    *(("classes/type", value) for value in ("datetime64[s]", "O", "V8", "int64", "bool", 5)),
    *(
        ("classes/values", v)
        for v in ([], ["no"], ["no", "no"], ["yes", "no"], ["a", "b", "c"], [1, 2], ["a", 2], [None, "a"])
    ),
    ("classes", {"type": "int8", "values": [0, 1000]}),
    ("classes", {"type": "float16", "values": [0.0, 1e300]}),
    ("classes", {"type": "bool", "values": [0, 1]}),
    ("classes", {"type": "str", "values": [*(f"{i:05d}" for i in range(1000)), "x" * 10**6]}),  # gigabytes as an array
]
# --- Summaries -------------------------------------------------------------------------------------------------------
SUMMARY_CHANGES: list[tuple[str, Any]] = [
    ("versions", None),
    ("versions", {"hetcal": "0.1.0"}),
    ("rows", -1),
    ("rows", 10**30),
    ("metrics", {"ce": [0.1]}),
    ("metrics", {"ce": float("nan")}),
    ("metrics", {str(i): [] for i in range(100_000)}),
    ("created", "yesterday\n"),
    ("dropped", "id"),
    ("history", []),
    ("validation_rows", [1, 2]),
    ("__proto__", {}),
]


def changed(keys: str, value: Any) -> Craft:
    return lambda parts: parts.change(keys, value).file()


def changed_summary(key: str, value: Any) -> Craft:
    return lambda parts: parts.file(parts.manifest_text(summary=dumps({**parts.manifest["summary"], key: value})))


def manifest(**changes: Any) -> Craft:
    return lambda parts: Parts(parts.manifest | changes, parts.tensors, parts.data).file()


def written(document: str, rewrite: Callable[[str], str]) -> Craft:
    """A document of the manifest with the same content, or hardly another, written differently."""
    return lambda parts: parts.file(parts.manifest_text(**{document: rewrite(dumps(parts.manifest[document]))}))


def rewritten(rewrite: Callable[[str], str]) -> Craft:
    """The manifest written differently; it still begins with a checksum at its place."""
    return lambda parts: parts.file(rewrite(parts.manifest_text()))


def without_key(document: str, key: str) -> Craft:
    return written(document, lambda text: dumps({name: v for name, v in json.loads(text).items() if name != key}))


def not_unicode(parts: Parts) -> bytes:
    header, data = split(parts.file())
    return seal(header.replace(b"regressor", b"regress\xff\xfe"), data)


def other_checksum(change: Callable[[str], str]) -> Craft:
    """A true file whose checksum is changed, and not made right again."""

    def craft(parts: Parts) -> bytes:
        file = parts.file()
        return file[: CHECKSUM.start] + change(file[CHECKSUM].decode()).encode() + file[CHECKSUM.stop :]

    return craft


DEEP = "[" * 100_000 + "]" * 100_000
SUM = '{"sha256":"' + "0" * 64 + '"'
DOCUMENTS: dict[str, Craft] = {
    "manifest is not JSON": lambda parts: parts.file("format: hetcal model"),
    "manifest is not JSON behind its checksum": lambda parts: parts.file(SUM + " format: hetcal model"),
    "manifest ends behind its checksum": lambda parts: parts.file(SUM),
    "manifest is nothing but a checksum": lambda parts: parts.file(SUM + "}"),
    "manifest is a list": lambda parts: parts.file("[]"),
    "manifest is empty": lambda parts: parts.file(""),
    "manifest is deep": lambda parts: parts.file(f'{SUM},"model":{DEEP}}}'),
    "manifest is huge": rewritten(lambda text: text + " " * 10**6),
    "manifest has a key twice": rewritten(lambda text: f'{text[:-1]},"format_version":{V}}}'),
    "manifest has its checksum twice": rewritten(lambda text: f"{text[:-1]},{SUM[1:]}}}"),
    "manifest has a byte order mark": rewritten(lambda text: "\ufeff" + text),
    "manifest with spaces": rewritten(lambda text: text.replace(',"', ', "', 1)),
    "manifest with a space at its end": rewritten(lambda text: text + " "),
    "manifest with a second one behind it": rewritten(lambda text: text + text),
    "manifest in another order": lambda parts: parts.file(
        dumps({key: parts.manifest[key] for key in ("sha256", "format_version", "summary", "model")})
    ),
    "manifest in escapes": lambda parts: parts.file(parts.manifest_text().replace("regressor", "regresso\\u0072")),
    "manifest with half a pair of surrogates": rewritten(lambda text: text.replace('"x0"', '"\\ud800"')),
    "manifest that is not Unicode": not_unicode,
    "manifest with a further key": manifest(run="import os"),
    "manifest with 100,000 further keys": manifest(**{str(i): 0 for i in range(100_000)}),
    "manifest without a model": manifest(model=None),
    "manifest without a summary": manifest(summary=None),
    "manifest with NaN": manifest(format_version=float("nan")),
    **{
        f"format version {v!r}"[:40]: manifest(format_version=v)
        for v in (*range(V), V + 1, -1, str(V), True, float(V), None, [V], 10**4000)
    },
    "format version as long as a book": written("format_version", lambda text: "1" * 10**6),
    "wrong SHA-256": other_checksum(lambda digits: "0" * 64),
    "SHA-256 that is not hexadecimal": other_checksum(lambda digits: "x" * 64),
    "SHA-256 in capitals": other_checksum(str.upper),
    "SHA-256 is a number": manifest(sha256=0),
    "SHA-256 of another length": manifest(sha256="ab"),
    "SHA-256 with more behind it": manifest(sha256="0" * 65),
    "model is not JSON": written("model", lambda text: "model"),
    "model is empty": written("model", lambda text: ""),
    "model is a number": written("model", lambda text: "1"),
    "model is text": written("model", dumps),
    "model is deep": written("model", lambda text: DEEP),
    "model has a key twice": written("model", lambda text: text[:-1] + ',"seed":0}'),
    "model with spaces": written("model", lambda text: text + " "),
    "model with a comment": written("model", lambda text: "/* */" + text),
    "model with a number in another spelling": written("model", lambda text: text.replace("0.002", "2e-3")),
    "model with a number as long as a book": written("model", lambda text: text.replace("0.002", "0." + "1" * 10**6)),
    "model with 200,000 unknown keys": written(
        "model", lambda text: text[:-1] + "".join(f',"{i}":0' for i in range(200_000)) + "}"
    ),
    "model with a million columns of nothing": written(
        "model", lambda text: dumps({**json.loads(text), "columns": [0] * 10**6})
    ),
    "model beyond the limit of headers": written("model", lambda text: text + " " * 2**24),
    "model without kind": without_key("model", "kind"),
    "model without seed": without_key("model", "seed"),
    "model without settings": without_key("model", "settings"),
    "summary is not JSON": written("summary", lambda text: "{"),
    "summary without versions": without_key("summary", "versions"),
    "documents swapped": lambda parts: parts.file(
        parts.manifest_text(model=dumps(parts.manifest["summary"]), summary=dumps(parts.manifest["model"]))
    ),
}
