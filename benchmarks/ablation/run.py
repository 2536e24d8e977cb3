"""What each part of the default is worth: the default minus one part at a time, on the same trained members.

    python benchmarks/ablation/run.py --out cells                    # real and synthetic data sets
    python benchmarks/ablation/run.py --tables FOLDER --out cells    # and the tables (*.csv.gz, target y) of a folder

The members are trained once for each table and split (and again for the parts of training); then pooling and
calibration are repeated without one part. A cell that is already in the folder is not computed again. Printed are
geometric means over the tables of CRPS and interval score relative to the whole default, and the mean of the
calibration error relative to its noise floor.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from hetcal import HCRegressor, datasets
from hetcal._files import atomic_write
from hetcal.estimators import cross_ensemble
from hetcal.estimators import held_out as calibration
from hetcal.estimators.base import predict
from hetcal.estimators.held_out import Stack, choose_stack
from hetcal.estimators.network_members import MemberMLPs
from hetcal.families import SCORES, Empirical
from hetcal.metrics import evaluate
from hetcal.objectives import crps_loss
from hetcal.splitting import split_rows
from hetcal.tabular.columns import read_table
from hetcal.tabular.targets import TargetScale, check_regression_target, fit_target_atoms

SETS = ("boston", "auto-mpg", "red-wine", "crime")
# Without which part, and the groups that it leaves out.
PARTS = (
    "whole",
    "forests",
    "medians of the forests",
    "boosted trees",
    "linear models",
    "networks of slow functions",
    "networks of fast functions",
    "relevance of columns",
    "stacking (equal weights)",
    "weights by certainty",
    "widening",
    "shape (normal instead)",
    "pool factor",
    "atoms",
    "all calibration",
)
FIGURES = ("crps", "interval_score_90", "ce", "ce_noise_floor", "rmse")


def fit_members(X: Any, y: np.ndarray, seed: int, **settings: Any) -> dict[str, Any]:
    """Train the members, and return everything that calibration needs."""
    model = HCRegressor(random_state=seed, **settings)
    rows = model._prepare(X, y, None, None, check_regression_target)
    scale = TargetScale.fit(None, rows.target, rows.weights)
    target = torch.from_numpy(scale.standardize(rows.target))
    ensemble, _, held = model._cross_fit(crps_loss, rows, target, "gaussian")
    return {"rows": rows, "scale": scale, "y": target.double().numpy()[:, None], "ensemble": ensemble, "held": held}


def calibrate_without(part: str, fitted: dict[str, Any]) -> Any:
    """Calibrate the trained ensemble without a part, in place; return the atoms of the target, if any."""
    ensemble, rows, held = fitted["ensemble"], fitted["rows"], fitted["held"]
    dropped = {
        "networks of slow functions": [0],
        "networks of fast functions": [1],
        "linear models": [2],
        "boosted trees": [3],
        "forests": [4, 5],
        "medians of the forests": [5],
    }
    without = {"weights by certainty": "POWERS", "widening": "WIDENINGS"}

    def stack(mean: Any, std: Any, y: Any, weights: Any, preference: float) -> Stack:
        kept = [group for group in range(len(mean)) if group not in dropped.get(part, [])]
        if part in ("stacking (equal weights)", "all calibration"):
            chosen = Stack(np.full(len(kept), 1 / len(kept)), power=0.0)
        else:
            chosen = choose_stack(mean[kept], std[kept], y, weights, preference)
        found = np.zeros(len(mean))
        found[kept] = chosen.group_weights
        return replace(chosen, group_weights=found)

    with ExitStack() as patches:
        patches.enter_context(patch.object(cross_ensemble, "choose_stack", stack))
        for name in without.values() if part == "all calibration" else filter(None, [without.get(part)]):
            patches.enter_context(patch.object(calibration, name, (0.0,)))
        calibrated = ensemble.calibrate(held, fitted["y"], rows.weights)
    if part in ("shape (normal instead)", "all calibration"):
        residuals = ((fitted["y"] - calibrated.location) / calibrated.scale)[:, 0]
        spread = 1.0 if part == "all calibration" else float(np.sqrt(np.average(residuals**2, weights=rows.weights)))
        ensemble.set_shapes([Empirical(spread * SCORES)])
    if part in ("pool factor", "all calibration"):
        ensemble.factor.fill_(1.0)
    if part in ("atoms", "shape (normal instead)", "all calibration"):
        return None
    return fit_target_atoms(ensemble, calibrated, fitted["scale"], rows.target, rows.counts)


def measure(name: str, X: Any, y: np.ndarray, seed: int, out: Path, **settings: Any) -> dict[str, dict[str, float]]:
    """Figures of every variant on one split of a table; the cell is read if it is there."""
    cell = out / f"{name}-{seed}.json"
    if cell.exists():
        return dict(json.loads(cell.read_text(encoding="utf-8")))
    train, test = split_rows(len(y), 0.2, seed)
    table = read_table(X)
    fitted = fit_members(table.take(train), y[train], seed, **settings)
    inputs = torch.from_numpy(fitted["rows"].encoder.transform(table.take(test)))
    figures = {}
    with patch.object(MemberMLPs, "RELEVANCE_RATE", 0.0):  # every column counts the same
        equal_columns = fit_members(table.take(train), y[train], seed, **settings)
    for part in PARTS:
        members = equal_columns if part == "relevance of columns" else fitted
        atoms = calibrate_without(part, members)
        prediction = members["scale"].in_units_of_y(predict(members["ensemble"], inputs).numpy())
        scores = evaluate(y[test], prediction if atoms is None else atoms.apply(prediction))
        figures[part] = {figure: float(scores[figure]) for figure in FIGURES}
    atomic_write(cell, json.dumps(figures).encode())
    return figures


def summarize(cells: dict[str, list[dict[str, dict[str, float]]]]) -> str:
    """A Markdown table; splits of a table count as one."""
    lines = ["| without | CRPS | interval score | CE / floor |", "|---|---|---|---|"]
    for part in PARTS:
        ratios = defaultdict(list)
        for splits in cells.values():
            for figure in ("crps", "interval_score_90"):
                values = [np.log(split[part][figure] / split["whole"][figure]) for split in splits]
                ratios[figure].append(np.mean(values))
            ratios["ce"].append(np.mean([split[part]["ce"] / split[part]["ce_noise_floor"] for split in splits]))
        crps, score = (np.exp(np.mean(ratios[figure])) for figure in ("crps", "interval_score_90"))
        name = "(nothing)" if part == "whole" else part
        lines.append(f"| {name} | {crps:.3f} | {score:.3f} | {np.mean(ratios['ce']):.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the cells; a temporary one without it")
    parser.add_argument("--tables", type=Path, help="folder with further tables, *.csv.gz with the target y")
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="data sets of hetcal")
    parser.add_argument("--only", nargs="*", help="of the tables of the folder, only these")
    parser.add_argument("--seeds", type=int, default=2, help="number of splits")
    parser.add_argument("--max-steps", type=int, help="for a quick run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, tuple[Any, np.ndarray]] = {}
    for name in options.sets:
        data = datasets.SYNTHETIC[name]() if name in datasets.SYNTHETIC else datasets.load(name)
        tables[name] = data.X, np.asarray(data.y)
    for path in sorted(options.tables.glob("*.csv.gz")) if options.tables else []:
        name = path.name.removesuffix(".csv.gz")
        if not options.only or name in options.only:
            frame = pd.read_csv(path)
            tables[name] = frame.drop(columns="y"), frame["y"].to_numpy()
    settings = {} if options.max_steps is None else {"max_steps": options.max_steps}
    cells = {
        name: [measure(name, X, y, seed, out, **settings) for seed in range(options.seeds)]
        for name, (X, y) in tables.items()
    }
    print(summarize(cells))


if __name__ == "__main__":
    main()
