"""The content of the report on a study folder: tables with error bars and noise floors, and the curves of all methods.

It is the same dict as for a comparison (`hetcal.report.comparison`), with a block per data set and an overview at the
top: data sets by methods, with published figures.
"""

from typing import Any

import numpy as np

from hetcal import __version__
from hetcal._checks import must
from hetcal.metrics import CURVE_LEVELS
from hetcal.metrics.wording import count
from hetcal.report.comparison import columns_of, describe_block
from hetcal.report.text import LONGEST_VALUE, clean, commands, finite, listing, without_folders
from hetcal.studies.protocol import Study, describe_varied
from hetcal.studies.results import Result, Results, estimate_figure
from hetcal.studies.statistics import COMPARED
from hetcal.studies.table import TableEntry, study_notes, tabulate

OVERVIEW = ("ce", "crps", "rmse")


def describe_bench(results: Results) -> dict[str, Any]:
    """Return the content of the report on a study folder, as plain JSON values."""
    if not results.done:
        raise must("folder", "hold finished cells", results.folder.name, "run the protocol first: hetcal bench run")
    protocol = results.protocol
    blocks = [block for study in protocol.studies for block in blocks_of(results, study)]
    facts = {
        "Studies": [study.name for study in protocol.studies],
        "Finished cells": len(results.done),
        "Failed cells": len(results.failed) or None,
        "Test part of random splits": protocol.test_fraction,
        "Maximum number of training rows": protocol.max_train_rows,
        "Protocol": protocol.hash,
    }
    content = {
        "kind": "comparison",
        "made_by": f"hetcal {__version__}",
        "title": clean(without_folders(protocol.title)),
        "eyebrow": "Study of methods on data sets",
        "notes": [clean(without_folders(note), LONGEST_VALUE) for note in study_notes(results)],
        "overview": [table for metric in OVERVIEW for table in overview_of(results, metric)],
        "columns": columns_of(blocks),
        "blocks": blocks,
        "data": listing({label: value for label, value in facts.items() if value is not None}),
        "settings": listing({**protocol.settings, **protocol.methods}),
        "reproduce": commands([f"hetcal bench run protocol.toml --out {results.folder.name}"]),
    }
    return {name: section for name, section in content.items() if name == "columns" or section not in (None, [])}


def overview_of(results: Results, metric: str) -> list[dict[str, Any]]:
    """The tables of `hetcal bench table`, one for each study."""

    def cell(entry: TableEntry | None) -> dict[str, Any] | None:
        if entry is None:
            return None
        return {
            "mean": finite(entry.estimate.mean),
            "standard_error": finite(entry.estimate.error) if entry.estimate.n > 1 else None,
            "published": entry.published,
            "mark": "best" if entry.is_best else None,
        }

    return [
        {
            "title": clean(table.title),
            "metric": metric,
            "methods": [clean(title) for title in table.methods],
            "rows": [
                {"name": clean(name), "floor": floor, "cells": [cell(entry) for entry in entries]}
                for name, floor, entries in table.rows
            ],
        }
        for table in tabulate(results, metric)
    ]


def blocks_of(results: Results, study: Study) -> list[dict[str, Any]]:
    """A block for each data set of a study, and for each of its variants."""
    blocks = []
    for dataset, varied, groups in results.by_method(study):
        finished = [result for group in groups.values() for result in group]
        split = finished[0]["split"]
        splits = max(len(group) for group in groups.values())
        floor = estimate_figure(finished, "ce_noise_floor")
        blocks.append(
            describe_block(
                name=" ".join(part for part in (f"{study.name}: {dataset}", describe_varied(varied)) if part),
                caption=f"{count(splits, split['rule'] + ' split')} with {split['n_train']:,} training "
                f"and {split['n_test']:,} test rows",
                methods=[read_group(method, group) for method, group in groups.items() if group],
                floor=floor.mean if floor else 0.0,
                band_rows=split["n_test"],
                recommended=None,
            )
        )
    return blocks


def read_group(name: str, group: list[Result]) -> dict[str, Any]:
    """A method on the splits of one data set."""
    metrics = {}
    for metric in COMPARED:
        figure = estimate_figure(group, metric) if all(metric in result["metrics"] for result in group) else None
        if figure:
            error = finite(figure.error) if figure.n > 1 else None
            metrics[metric] = {"mean": finite(figure.mean), "standard_error": error}
    coverage = np.mean([result["coverage"] for result in group], axis=0)
    return {
        "name": clean(name),
        "title": clean(group[0]["title"]),
        "failed": None,
        "metrics": metrics,
        "curve": {"levels": CURVE_LEVELS.tolist(), "coverage": coverage.tolist()},
    }
