"""Hostile files through the command line: what can be used is used, everything else is refused with exit code 2 and one
line that names the fault; never a traceback, a NaN in a prediction, or half a file."""

import io
import os

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

N = 40
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 2))
Y = X[:, 0] + 0.3 * RANDOM.normal(size=N)
TOWN = np.array(["Aix", "Bonn"] * (N // 2))
TINY = ("--method", "hnn", "--set", "max_epochs=2", "--set", "width=8", "--set", "depth=1")


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": TOWN, "y": Y}).assign(**columns)


def text(**columns):
    return frame(**columns).to_csv(index=False)


@pytest.fixture
def fit(hetcal, tmp_path):
    """Write a table and fit it; the answer of the command."""

    def call(content, *options, name="train.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        given = ["--target", "y", "--out", "model.hetcal", "--quiet", *TINY]
        for option in ("--method", "--out"):  # an option that is given twice is refused
            if option in options:
                place = given.index(option)
                del given[place : place + 2]
        return hetcal("fit", name, *given, *options)

    return call


def check_refused(ended, *words):
    code, out, err = ended
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    # A warning may come first; the error is one line.
    errors = [line for line in err.splitlines() if not line.startswith("hetcal: warning:")]
    assert len(errors) == 1, err
    assert errors[0].startswith("hetcal: ")
    for word in words:
        assert word in errors[0]


def with_value(column, row, value):
    table = frame().astype(object)
    table.loc[row, column] = value
    return table.to_csv(index=False)


USED = {
    "as it is": text(),
    "y + 1e9": text(y=Y + 1e9),
    "y * 1e-12": text(y=Y * 1e-12),
    "y * 1e200": text(y=Y * 1e200),
    "a feature in units of 1e-12": text(a=X[:, 0] * 1e-12),
    "a feature of 1e39": text(a=X[:, 0] * 1e39),
    "a feature of 1e300": text(a=X[:, 0] * 1e300),
    "constant features": text(a=1.0, b=2.0, town="Aix"),
    "no noise": text(y=X[:, 0]),
    "a column of missing values": text(a=""),
    "mostly missing": text(a=np.where(np.arange(N) < 30, "NA", X[:, 0].astype(str))),
    "numbers in quotes": "\n".join(",".join(f'"{cell}"' for cell in row.split(",")) for row in text().splitlines()),
    "a question mark for missing": text(a=np.where(np.arange(N) < 3, "?", X[:, 0].astype(str))),
    "booleans": text(a=np.where(X[:, 0] > 0, "TRUE", "false")),
    "dates": text(a=pd.date_range("2024-01-31", periods=N).astype(str)),
    "date-times with a zone": text(a=pd.date_range("2024-01-31", periods=N, freq="7h").strftime("%Y-%m-%dT%H:%M:%SZ")),
    "semicolons and decimal commas": frame().to_csv(index=False, sep=";", decimal=","),
    "tabs": frame().to_csv(index=False, sep="\t"),
    "BOM and CRLF": b"\xef\xbb\xbf" + text().replace("\n", "\r\n").encode(),
    "UTF-16": text().encode("utf-16"),
    "Latin letters": text(town=np.where(TOWN == "Aix", "Köln", "Bonn")).encode("cp1252"),
    "a hostile name": text().replace("town", "<script>alert(1)</script>"),
    "a name in another script": text().replace("town", "城市"),
    "names with blanks": text().replace("town", " my  town "),
    "1,000 labels": text(town=[f"t{i}" for i in range(N)]),
    "an empty line at the end": text() + "\n\n",
    "integers of twenty digits": text(a=[str(10**19 + i) for i in range(N)]),
    "a column named mean": text().replace("town", "mean"),
}


@pytest.mark.parametrize("case", USED)
def test_usable_tables_are_fitted_and_predicted(case, fit, hetcal, tmp_path):
    """From the table to the report, with finite predictions in the order of the rows."""
    code, _, err = fit(USED[case], "--report", "report.html")
    assert code == 0, err
    assert "Traceback" not in err
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    code, out, err = hetcal("predict", "model.hetcal", "train.csv", "--out", "-")
    assert code == 0, err
    predicted = pd.read_csv(io.StringIO(out))
    assert len(predicted) == N
    assert np.isfinite(predicted.to_numpy()).all()
    assert (predicted["std"] > 0).all()
    assert (predicted["lower_90"] < predicted["upper_90"]).all()


REFUSED = {
    "an empty file": ("", ["train.csv", "empty"]),
    "blank lines only": ("\n\n\n", ["train.csv"]),
    "a header only": ("a,b,y\n", ["train.csv", "row"]),
    "one row": ("a,b,y\n1,2,3\n", ["row"]),
    "one column": ("y\n1\n2\n3\n4\n5\n6\n", ["at least one column besides the target"]),
    "no such target": (text().replace("y\n", "z\n", 1), ["target must be one of", "got target='y'"]),
    "a target of text": (text(y=TOWN), ["target must be a column of numbers, got target='y'", "row"]),
    "a target of dates": (text(y=pd.date_range("2024-01-01", periods=N).astype(str)), ["target='y'", "dates"]),
    "a gap in the target": (with_value("y", 3, ""), ["target='y'", "row 5"]),
    "a word in the target": (with_value("y", 3, "n.a."), ["'y'", "row 5", "n.a."]),
    "a target of missing values": (text(y=""), ["target='y'"]),
    "infinity in the target": (with_value("y", 3, "inf"), ["'y'", "row 5"]),
    "infinity in a feature": (with_value("a", 3, "-Infinity"), ["'a'", "row 5"]),
    "an overflowing number": (with_value("a", 3, "1e400"), ["'a'", "row 5"]),
    "an unparsable number": (with_value("a", 3, "1.2.3"), ["'a'", "row 5", "1.2.3"]),
    "thousands with commas": (text(a=[f"1,{i:03}.5" for i in range(N)]), ["'a'", "1,000.5"]),
    "dates of another style": (text(a=[f"{i % 28 + 1:02}.03.2024" for i in range(N)]), ["'a'", "YYYY-MM-DD"]),
    "constant y": (text(y=1.0), ["y must vary", "y=1.0"]),
    "the same name twice": (text().replace("b,town", "a,town"), ["'a'"]),
    "a name missing": (text().replace("b,town", ",town", 1), ["train.csv"]),
    "a row too long": (text() + "1,2,Aix,4,5\n", ["row 42"]),
    "a row too short": (text() + "1,2\n", ["row 42"]),
    "zero bytes": (text().encode().replace(b"Aix", b"A\0x", 1), ["train.csv"]),
    "two encodings": (text().encode() + b"1,2,K\xc3\xb6ln,3\n" * 200_000 + b"1,2,K\xf6ln,3\n", ["--encoding"]),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, ["train.csv", "CSV"]),
    "a spreadsheet": (b"PK\3\4" + bytes(200), ["train.csv", "CSV"]),
    "half a gzip file": (b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"junk", ["train.csv"]),
    "half a Parquet file": (b"PAR1" + bytes(100) + b"PAR1", ["train.csv"]),
    "random bytes": (np.random.default_rng(1).bytes(4000), ["train.csv"]),
    "an open quote": ('a,b,y\n"1,2,3\n4,5,6\n', ["train.csv"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unusable_tables_are_refused_in_one_line(case, fit, tmp_path):
    """An existing model is unchanged, and no other file appears."""
    content, words = REFUSED[case]
    (tmp_path / "model.hetcal").write_bytes(b"the old one")
    check_refused(fit(content, "--force"), *words)
    assert (tmp_path / "model.hetcal").read_bytes() == b"the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.hetcal", "train.csv"]


OPTIONS = {
    "an unknown method": (["--method", "dropout-hx"], ["did you mean 'dropout_hc'?"]),
    "an unknown setting": (["--set", "learning_rat=1"], ["did you mean 'learning_rate'?"]),
    "a setting without value": (["--set", "width"], ["must have the form name=value"]),
    "a setting out of range": (["--set", "width=0"], ["width must be at least 1"]),
    "a setting of text": (["--set", "width=wide"], ["width must be a whole number"]),
    "a network to import": (["--set", "network=os.system"], ["--set must be one of"]),
    "an unknown group": (["--group", "patient"], ["group must be one of"]),
    "an unknown column to drop": (["--drop", "twon"], ["did you mean 'town'?"]),
    "an unknown column of text": (["--text", "twon"], ["did you mean 'town'?"]),
    "the target dropped": (["--drop", "y"], ["target"]),
    "everything dropped": (["--drop", "a", "--drop", "b", "--drop", "town"], ["at least one column"]),
    "test rows of 150 %": (["--test-size", "1.5"], ["test_size must be"]),
    "a negative test size": (["--test-size", "-1"], ["test_size must be at least 0"]),
    "a report without test rows": (["--test-size", "0", "--report", "r.html"], ["a report needs test rows"]),
    "no such test file": (["--test", "none.csv"], ["none.csv"]),
    "an unknown encoding": (["--encoding", "utf-99"], ["utf-99"]),
    "an unknown decimal mark": (["--decimal", "x"], ["decimal"]),
    "a report in no folder": (["--report", "none/r.html"], ["none"]),
    "a network beyond all memory": (["--set", "width=100000000000"], ["hetcal: "]),
    "a number of 24 digits": (["--set", "max_epochs=" + "9" * 24, "--set", "patience=5"], ["hetcal: "]),
    "a million members": (["--method", "ensemble_hc", "--set", "members=1000000"], ["members must be"]),
    "a setting of another method": (["--method", "auto", "--set", "members=4"], ["name only methods that have it"]),
    "the model over the table": (["--out", "train.csv", "--force"], ["--out must end in .hetcal"]),
    "the report over the table": (["--report", "train.csv", "--force"], ["--report must end in .html"]),
    "a name of 250 letters": (["--report", "r" * 245 + ".html"], ["too long"]),
    "a report that is no page": (["--report", "r.pdf"], ["--report must end in .html"]),
    "a negative seed": (["--seed", "-1"], ["seed must be at least 0"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options_are_refused_in_one_line(case, fit, tmp_path):
    options, words = OPTIONS[case]
    check_refused(fit(text(), *options), *words)
    assert not (tmp_path / "model.hetcal").exists()


@pytest.fixture
def model(fit, hetcal):
    """A fitted model file, in the folder of the test."""
    code, _, err = fit(text())
    assert code == 0, err
    return "model.hetcal"


PREDICT = {
    "columns missing and new": (text().replace("a,b", "a,bb", 1), ["'b'", "'bb'"]),
    "text for a number": (with_value("a", 3, "high"), ["'a'", "row 5", "high"]),
    "infinity": (with_value("a", 3, "inf"), ["'a'", "row 5"]),
    "an empty file": ("", ["new.csv"]),
    "a header only": ("a,b,town\n", ["new.csv"]),
}


@pytest.mark.parametrize("case", PREDICT)
def test_prediction_refuses_what_does_not_fit(case, hetcal, model, tmp_path):
    """Nothing is written, and the old predictions stay."""
    content, words = PREDICT[case]
    (tmp_path / "new.csv").write_text(content)
    (tmp_path / "p.csv").write_text("old")
    check_refused(hetcal("predict", model, "new.csv", "--out", "p.csv", "--force"), *words)
    assert (tmp_path / "p.csv").read_text() == "old"
    assert not list(tmp_path.glob(".*"))


def test_columns_are_matched_by_name(hetcal, model, tmp_path):
    """Another order, and further columns, give the same predictions."""
    frame()[["y", "town", "b", "a"]].assign(more=1).to_csv(tmp_path / "other.csv", index=False)
    tables = [pd.read_csv(io.StringIO(hetcal("predict", model, name, "--out", "-")[1])) for name in FILES]
    assert_allclose(tables[0], tables[1], rtol=0)


FILES = ("train.csv", "other.csv")


def test_predictions_are_replaced_only_by_force(hetcal, model, tmp_path):
    """In every format, and no temporary file remains."""
    for name, start in (
        ("p.csv", b"mean,"),
        ("p.parquet", b"PAR1"),
        ("p.feather", b"ARROW1"),
        ("p.csv.gz", b"\x1f\x8b"),
    ):
        assert hetcal("predict", model, "train.csv", "--out", name, "--quiet") == (0, "", "")
        check_refused(hetcal("predict", model, "train.csv", "--out", name), f"{name} already exists; use --force")
        assert hetcal("predict", model, "train.csv", "--out", name, "--force")[0] == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert not list(tmp_path.glob(".*"))


def test_other_wrong_words_of_predict(hetcal, model, tmp_path):
    predict = ("predict", model, "train.csv")
    check_refused(hetcal(*predict, "--out", "-", "--level", "95"), "level must be between 0 and 1", "0.95")
    check_refused(hetcal(*predict, "--out", "-", "--quantiles", "a,b"), "quantiles must be numbers")
    check_refused(hetcal(*predict, "--out", "-", "--quantiles", "0"), "quantiles must be between 0 and 1")
    check_refused(hetcal(*predict, "--out", "-", "--keep", "none"), "none")
    check_refused(hetcal(*predict, "--out", "p.xlsx"), "p.xlsx", ".csv")
    check_refused(hetcal(*predict, "--out", "no/folder/p.csv"), "folder")
    check_refused(hetcal("predict", "train.csv", "train.csv", "--out", "-"), "train.csv must be a hetcal model file")
    check_refused(hetcal("predict", "none.hetcal", "train.csv", "--out", "-"), "none.hetcal")
    check_refused(hetcal("predict", model, model, "--out", "-"), "model.hetcal is a hetcal model")
    check_refused(hetcal("info", "train.csv"), "train.csv must be a hetcal model file")
    check_refused(hetcal("export", model, "--onnx", "m.onnx"), "town")
    check_refused(hetcal("evaluate", model), "add the name of the table to evaluate it on")
    check_refused(hetcal("evaluate", "train.csv"), "--target")
    check_refused(hetcal(*predict, "--out", "-", "--level", "90%"), "level must be numbers", "90%")
    check_refused(hetcal("evaluate", model, "train.csv", "--mean", "m"), "for a table of predictions")
    check_refused(hetcal(*predict, "--out", "train.csv", "--force"), "train.csv is named twice")
    check_refused(
        hetcal("compare", "train.csv", "--target", "y", "--methods", "dropout-hx"), "did you mean 'dropout_hc'?"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.hetcal", "train.csv"]


def test_anyones_predictions_must_make_sense(hetcal, tmp_path):
    """A standard deviation of zero or below, a gap, a name that is no column."""
    table = pd.DataFrame({"truth": [1.0, 2.0, 3.0], "m": [1.0, 2.0, 2.5], "s": [1.0, 0.0, -1.0], "g": [1.0, None, 2.0]})
    table.to_csv(tmp_path / "p.csv", index=False)
    judge = ("evaluate", "p.csv", "--target", "truth")
    check_refused(hetcal(*judge), "mean must be one of")
    check_refused(
        hetcal(*judge, "--mean", "m", "--std", "s"),
        "std must be a column of positive numbers, got std='s'",
        "rows 3, 4",
    )
    check_refused(
        hetcal(*judge, "--mean", "g", "--std", "m"), "mean must be a column with a value in every row", "row 3"
    )
    code, out, _ = hetcal(*judge, "--mean", "m", "--std", "m")
    assert code == 0
    assert "Too few rows to tell" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line(warm_python, model, tmp_path):
    """Standard output that cannot be written; files on a full disk are tested with the writer."""
    with open("/dev/full", "wb") as full, (tmp_path / "said").open("w") as stderr:
        command = ["-m", "hetcal.cli", "predict", model, "train.csv", "--out", "-"]
        process = warm_python.start(*command, cwd=tmp_path, stdout=full, stderr=stderr)
        assert process.wait(timeout=120) == 2
    said = (tmp_path / "said").read_text()
    assert said == "hetcal: No space left on device\n"
