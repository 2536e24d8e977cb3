"""The default beside its peers, and the targets it was built for, met or not: from cells.csv and summary.csv.

python benchmarks/peers/claims.py             # the folder of this script
python benchmarks/peers/claims.py quick       # another folder with the two files
python benchmarks/peers/claims.py --rows      # the tuning tables one by one, too; they are not for publication

A method is compared with the peers on the splits that both have finished. CE, which is compared with its floor, is
shown for all splits that a method has finished. Seconds are those of the first split, so that it suffices to run this
one on an idle machine.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
OURS = "cross_hc"
BOOSTERS = ["catboost", "ngboost", "mapie_lightgbm"]
PEERS = [*BOOSTERS, "quantile_forest"]
FIGURES = {
    "ce": "CE (a perfect model has the floor)",
    "crps": "CRPS",
    "interval_score_90": "Interval score (90 %)",
    "rmse": "RMSE",
    "seconds": "Seconds to fit and predict the first split, one thread",
    "peak_memory_mb": "Peak memory of the process in MB, with Python and torch",
}
TIMED_SPLIT = 0
# The targets.
MOST_FLOORS = 1.5
MOST_TUNING_MEAN, MOST_TUNING_RATIO = 0.90, 1.05
MOST_RMSE = 1.03
FEWEST_BEFORE_FOREST = 5
# Seconds by training rows: constant, then linear, then in proportion to the rows.
SECONDS = {1_000: 8.0, 10_000: 45.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE, help="with cells.csv and summary.csv")
    parser.add_argument("--rows", action="store_true", help="print every tuning table, not only their mean")
    options = parser.parse_args()
    cells = pd.read_csv(options.folder / "cells.csv", na_values=[""], keep_default_na=False)
    summary = pd.read_csv(options.folder / "summary.csv", keep_default_na=False)
    cells = cells.replace({"study": {"networks": "paper"}})  # the same data sets and splits
    for study, title in {"paper": "Random splits", "grouped": "Grouped splits", "tuning": "Tuning tables"}.items():
        rows = cells[cells.study == study]
        if len(rows):
            print(f"## {title}\n")
            if study != "tuning" or options.rows:
                show(rows)
            summarize(rows)
    print("## Targets\n\n| target | met | measured |\n|---|---|---|")
    for target, verdict, measured in targets(cells, summary):
        print(f"| {target} | {verdict} | {measured} |")


def show(cells: pd.DataFrame) -> None:
    """One table for each figure: mean over the splits, and its standard error."""
    methods = list(dict.fromkeys(cells.method))
    for figure, title in FIGURES.items():
        floor = ["floor"] if figure == "ce" else []
        print(f"**{title}**\n")
        print("| data set | " + " | ".join(["splits", *floor, *methods]) + " |")
        print("|---" + "|---:" * (1 + len(floor) + len(methods)) + "|")
        for dataset, rows in shown_splits(cells, figure).groupby("dataset", sort=False):
            splits = rows.seed.nunique()
            words = [str(splits)] + [f"{rows.ce_noise_floor.mean():.3f}" for _ in floor]
            words += [with_error(rows[rows.method == method][figure].dropna(), splits) for method in methods]
            print(f"| {dataset} | " + " | ".join(words) + " |")
        print()


def shown_splits(cells: pd.DataFrame, figure: str) -> pd.DataFrame:
    if figure == "ce":
        return cells
    return cells[cells.seed == TIMED_SPLIT] if figure == "seconds" else on_common_splits(cells)


def on_common_splits(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of those splits of a data set that we and all of the four peers have finished, as far as they ran."""
    main = cells[cells.method.isin([OURS, *PEERS])]
    finished = main.groupby(["dataset", "seed"]).method.nunique()
    most = finished.groupby("dataset").max()
    is_common = [finished.get((row.dataset, row.seed), 0) == most[row.dataset] for row in cells.itertuples()]
    return cells[is_common]


def with_error(values: pd.Series, splits: int) -> str:
    """Mean and standard error; the number of splits, if it is not that of the row."""
    if not len(values):
        return ""
    error = f" ± {values.std() / len(values) ** 0.5:.1g}" if len(values) > 1 else ""
    return f"{values.mean():.3g}{error}" + (f" ({len(values)})" if len(values) < splits else "")


def summarize(cells: pd.DataFrame) -> None:
    """Our CRPS and interval score relative to each peer's: geometric mean over the data sets, and where we lose."""
    print("| relative to | data sets | CRPS | lower on | interval score | lower on |\n|---|---:|---:|---:|---:|---:|")
    others = [method for method in dict.fromkeys(cells.method) if method != OURS]
    for peers, name in [*(([method], method) for method in others), (PEERS, "the best of the four")]:
        words = []
        for figure in ("crps", "interval_score_90"):
            ratios = relative(cells, figure, peers)
            known = len(ratios) > 0
            words += [f"{geometric_mean(ratios):.3f}" if known else "", f"{(ratios < 1).sum()}" if known else ""]
        print(f"| {name} | {len(ratios)} | " + " | ".join(words) + " |")
    print()


def geometric_mean(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios).mean()))


def relative(cells: pd.DataFrame, figure: str, peers: list[str]) -> pd.Series:
    """By data set: the mean of ours over the lowest mean of these peers, on the splits that all of them have."""
    ratios = {}
    for dataset, rows in cells[cells.method.isin([OURS, *peers])].groupby("dataset", sort=False):
        wide = rows.pivot(index="seed", columns="method", values=figure).dropna()
        if OURS in wide and len(wide.columns) > 1 and len(wide):
            means = wide.mean()
            ratios[dataset] = means[OURS] / means.drop(OURS).min()
    return pd.Series(ratios, dtype=float)


def targets(cells: pd.DataFrame, summary: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Each target, whether it is met, and by what figure; "not run" without cells of ours."""
    study = {name: cells[cells.study == name] for name in ("paper", "grouped", "tuning")}
    ours = study["paper"][study["paper"].method == OURS].groupby("dataset", sort=False)
    floors = ours.ce.mean() / ours.ce_noise_floor.mean()
    rows = [limit(f"CE at most {MOST_FLOORS} floors on every set, random splits", floors, MOST_FLOORS, "floors")]
    for figure, title in {"crps": "CRPS", "interval_score_90": "Interval score"}.items():
        boosters = relative(study["paper"], figure, BOOSTERS)
        forest = relative(study["paper"], figure, ["quantile_forest"])
        rows.append(limit(f"{title} below CatBoost, NGBoost and MAPIE on every set, random splits", boosters, 1.0))
        rows.append(
            (
                f"{title} below the forest on at least {FEWEST_BEFORE_FOREST} sets, random splits",
                verdict(forest, (forest < 1).sum() >= FEWEST_BEFORE_FOREST),
                f"{(forest < 1).sum()} of {len(forest)}" if len(forest) else "",
            )
        )
        rows.append(limit(f"{title} below all four, grouped splits", relative(study["grouped"], figure, PEERS), 1.0))
    tuning = relative(study["tuning"], "crps", PEERS)
    mean = geometric_mean(tuning) if len(tuning) else np.nan
    rows.append(
        (
            f"Tuning tables: mean CRPS relative to the best peer at most {MOST_TUNING_MEAN:.2f}",
            verdict(tuning, mean <= MOST_TUNING_MEAN),
            f"{mean:.3f} over {len(tuning)} tables" if len(tuning) else "",
        )
    )
    rows.append(limit(f"Tuning tables: none above {MOST_TUNING_RATIO}", tuning, MOST_TUNING_RATIO, is_named=False))
    for name, title in {"paper": "random splits", "grouped": "grouped splits", "tuning": "tuning tables"}.items():
        ratios, is_named = relative(study[name], "rmse", BOOSTERS), name != "tuning"
        rows.append(limit(f"RMSE at most {MOST_RMSE} of the best booster's, {title}", ratios, MOST_RMSE, "", is_named))
    fits = summary[summary.method == OURS].set_index(["study", "dataset"])
    timed = cells[(cells.method == OURS) & (cells.seed == TIMED_SPLIT)]
    seconds = timed.set_index(["study", "dataset"]).seconds
    limits = fits.n_train.map(most_seconds)[seconds.index]
    shares = (seconds / limits).set_axis([" ".join(names) for names in seconds.index])
    rows.append(limit("Seconds: 8 up to 1,000 rows, 45 at 10,000, then in proportion", shares, 1.0, "of the limit"))
    return rows


def most_seconds(rows: int) -> float:
    (few, short), (many, long) = SECONDS.items()
    if rows > many:
        return long * rows / many
    return short + (long - short) * max(rows - few, 0) / (many - few)


def limit(target: str, values: pd.Series, most: float, unit: str = "", is_named: bool = True) -> tuple[str, str, str]:
    """A target that every value must meet; the largest is shown, with its data set."""
    if not len(values):
        return target, "not run", ""
    above = f", {(values > most).sum()} of {len(values)} above {most:g}"
    where = f" ({values.idxmax()})" if is_named else ""
    return target, verdict(values, (values <= most).all()), f"largest {values.max():.3f} {unit}".strip() + where + above


def verdict(values: pd.Series, is_met: bool) -> str:
    return ("yes" if is_met else "**no**") if len(values) else "not run"


if __name__ == "__main__":
    main()
