"""`hetcal info`: describe a model file, without torch."""

from typing import Any

from hetcal.cli.options import InfoOptions
from hetcal.cli.show import describe_choices
from hetcal.model_files.archive import read_model_file
from hetcal.model_files.learned import NumericColumn
from hetcal.model_files.schema import ClassifierDocument, ModelDocument, RegressorDocument


def describe_file(options: InfoOptions) -> dict[str, Any]:
    """Describe a model file. The whole file is checked."""
    contents = read_model_file(options.model)
    model, summary = contents.model, contents.summary
    facts = {
        "target": summary.target,
        "method": summary.method,
        "trained on": None if summary.rows is None else f"{summary.rows} rows",
        "evaluated on": f"{summary.test_rows} rows" if summary.test_rows else None,
        "recalibrated": describe_recalibration(model),
        "test rows": summary.split,
        "groups": summary.group,
        "omitted": ", ".join(summary.dropped or []) or None,
        "created": summary.created,
        "versions": ", ".join(f"{name} {version}" for name, version in summary.versions.model_dump().items()),
        **list_choices_of(model),
        "custom parts": ", ".join(sorted(model.settings.own)) or None,
        "size": f"{len(contents.weights) / 1e6:.2f} MB, {len(contents.tensors)} tensors",
    }
    return {
        "command": options.command,
        "file": str(options.model),
        "title": model_title(model),
        "facts": {name: value for name, value in facts.items() if value is not None},
        "columns": [describe_column(column) for column in model.columns],
        "settings": {name: flat(value) for name, value in model.settings.model_dump().items() if value is not None},
        "metrics": summary.metrics or {},
    }


def list_choices_of(model: ModelDocument) -> dict[str, str]:
    if not isinstance(model, RegressorDocument):
        return {}
    transform = model.target.transforms[0].name if model.target.transforms else None
    atoms = 0 if model.target.atoms is None else len(model.target.atoms.values)
    return describe_choices(transform, model.settings.is_cross, atoms)


def model_title(model: ModelDocument) -> str:
    if isinstance(model, ClassifierDocument):
        return f"classifier for {len(model.classes.values)} classes"
    return "regressor" if model.n_targets == 1 else f"regressor for {model.n_targets} targets"


def describe_recalibration(model: ModelDocument) -> str | None:
    found = getattr(model, "recalibration", None)
    return None if found is None else f"{found.method}, by {found.rows} rows that were not trained on"


def describe_column(column: Any) -> dict[str, Any]:
    about = {"name": column.name, "kind": column.kind}
    if isinstance(column, NumericColumn):
        return {**about, "range": column.range, "has_missing": any(part.has_missing for part in column.features)}
    return {**about, "labels": column.labels, "has_rare": column.has_rare}


def flat(value: Any) -> Any:
    return ", ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else value
