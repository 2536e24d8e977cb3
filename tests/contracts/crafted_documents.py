"""Documents of model files that somebody changed on purpose, in files whose checksums are right."""

import json
from collections.abc import Callable
from typing import Any

from hetcal.model_files.archive import MODEL, SUMMARY, WEIGHTS
from tests.model_files.samples import Craft, Parts, dumps, forge, manifest_of

# --- Documents of a regressor: key and value, all else right ---------------------------------------------------------
QUANTILE = {"name": "quantile", "knots": [0.0, 1.0], "scores": [0.0, 1.0], "slopes": [1.0, 1.0, 1.0]}
TEXT = {"name": "x0", "kind": "text", "labels": ["a", "b"], "has_rare": False}
SCALE = {"magnitude": 1.0, "center": 0.0, "spread": 1.0}
DATES = {"name": "x0", "kind": "dates", "range": [0.0, 1.0], "features": [{**SCALE, "has_missing": False}] * 7}
CHANGES: list[tuple[str, Any]] = [
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
# --- Documents of a classifier ---------------------------------------------------------------------------------------
CLASS_CHANGES: list[tuple[str, Any]] = [
    ("settings/estimator", "ensemble"),
    ("settings/likelihood", "eval"),
    ("settings/objective", "nll"),
    ("target", {"scales": [], "transforms": None}),
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
    return lambda parts: forge(parts.change(keys, value).members(), kind=parts.kind)


def changed_summary(key: str, value: Any) -> Craft:
    return lambda parts: forge({**parts.members(), SUMMARY: dumps({**parts.summary, key: value})})


def written(member: str, rewrite: Callable[[bytes], bytes]) -> Craft:
    """A document with the same content, or hardly another, written in another way."""
    return lambda parts: forge({**parts.members(), member: rewrite(parts.members()[member])})


def manifest(**changes: Any) -> Craft:
    return lambda parts: forge(parts.members(), manifest_of(parts.members(), **changes))


def without_key(member: str, key: str) -> Craft:
    def rewrite(text: bytes) -> bytes:
        document = json.loads(text)
        del document[key]
        return dumps(document)

    return written(member, rewrite)


def sums(member: str, **changes: Any) -> Craft:
    """A manifest that tells another size or SHA-256 of a member."""

    def craft(parts: Parts) -> bytes:
        content = manifest_of(parts.members())
        content["members"][member] |= changes
        return forge(parts.members(), content)

    return craft


DEEP = b"[" * 100_000 + b"]" * 100_000
DOCUMENTS: dict[str, Craft] = {
    "manifest is no JSON": lambda parts: forge(parts.members(), b"format: hetcal model"),
    "manifest is a list": lambda parts: forge(parts.members(), b"[]"),
    "manifest is empty": lambda parts: forge(parts.members(), b""),
    "manifest is deep": lambda parts: forge(parts.members(), DEEP[:60_000]),
    "manifest is huge": lambda parts: forge(parts.members(), dumps(manifest_of(parts.members())) + b" " * 10**6),
    "manifest has a key twice": lambda parts: forge(
        parts.members(), dumps(manifest_of(parts.members()))[:-1] + b', "kind": "regressor"}'
    ),
    "manifest with a further key": manifest(run="import os"),
    "manifest of another format": manifest(format="hetcal modem"),
    "manifest of a classifier": manifest(kind="classifier"),
    "manifest of an unknown kind": manifest(kind="os.system"),
    "manifest without members": manifest(members={}),
    "manifest with NaN": manifest(format_version=float("nan")),
    **{
        f"format version {v!r}"[:40]: manifest(format_version=v)
        for v in (0, 2, -1, "1", True, 1.0, None, [1], 10**4000)
    },
    "wrong SHA-256": sums(MODEL, sha256="0" * 64),
    "SHA-256 is no text": sums(MODEL, sha256=0),
    "SHA-256 of another length": sums(WEIGHTS, sha256="ab"),
    "sizes too small": sums(WEIGHTS, bytes=10),
    "sizes too large": sums(WEIGHTS, bytes=2**32 - 1),
    "sizes beyond all bounds": sums(WEIGHTS, bytes=2**64),
    "sizes below zero": sums(WEIGHTS, bytes=-1),
    "sizes of a document too large": sums(MODEL, bytes=2**31),
    "model is no JSON": written(MODEL, lambda text: b"\xff\xfe"),
    "model is empty": written(MODEL, lambda text: b""),
    "model is a number": written(MODEL, lambda text: b"1"),
    "model is deep": written(MODEL, lambda text: DEEP),
    "model has a key twice": written(MODEL, lambda text: text[:-1] + b', "seed": 0}'),
    "model with spaces": written(MODEL, lambda text: text + b" "),
    "model with a comment": written(MODEL, lambda text: b"/* */" + text),
    "model with a number in another spelling": written(MODEL, lambda text: text.replace(b"0.002", b"2e-3")),
    "model with a number as long as a book": written(MODEL, lambda text: text.replace(b"0.002", b"0." + b"1" * 10**6)),
    "model with 200,000 unknown keys": written(
        MODEL, lambda text: text[:-1] + b"".join(b', "%d": 0' % i for i in range(200_000)) + b"}"
    ),
    "model with a million columns of nothing": written(
        MODEL, lambda text: dumps({**json.loads(text), "columns": [0] * 10**6})
    ),
    "model beyond its limit": written(MODEL, lambda text: text + b" " * 2**24),
    "model without seed": without_key(MODEL, "seed"),
    "model without settings": without_key(MODEL, "settings"),
    "summary is no JSON": written(SUMMARY, lambda text: b"{"),
    "summary without versions": without_key(SUMMARY, "versions"),
    "documents swapped": lambda parts: forge(
        {**parts.members(), MODEL: parts.members()[SUMMARY], SUMMARY: parts.members()[MODEL]}
    ),
}
