"""`hetcal demo`: the default and the paper's four methods on two data sets, a table of metrics, and figures."""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from tqdm.auto import tqdm

from hetcal.cli.options import DemoOptions
from hetcal.datasets import heteroscedastic
from hetcal.methods import DEFAULT, METHODS, PAPER, make
from hetcal.metrics import coverage, evaluate, judge
from hetcal.metrics.wording import fixed
from hetcal.studies.statistics import FIGURES

DEMO_SEED = 0
FITTED = (DEFAULT, *PAPER)
SHOWN = ("rmse", "ce", "ce_noise_floor", "crps", "nll", "coverage_90", "interval_width_90", "seconds")
CORRELATION = "std_correlation"
HEADINGS = {**{name: FIGURES[name].heading for name in SHOWN}, CORRELATION: "sigma corr."}
Arrays = dict[str, NDArray[np.float64]]


def run_demo(options: DemoOptions) -> None:
    """Fit the methods, print the table and draw the figures."""
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    data = {"diabetes": diabetes(), "synthetic": synthetic()}
    jobs = [(name, method) for name in data for method in FITTED]
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for name, method in (bar := tqdm(jobs, unit="fit", leave=False)):
        bar.set_description(f"{METHODS[method].title} on {name}")
        results[name, method] = fit_and_evaluate(data[name], method)

    for name, arrays in data.items():
        print(f"\n{DATA_TITLES[name]}: {len(arrays['y_train'])} training rows, {len(arrays['y'])} test rows\n")
        print(table([(METHODS[method].title, results[name, method]) for method in FITTED]))
        for method in FITTED:
            print(f"  {METHODS[method].title:<12} {results[name, method]['verdict']}")
            if "training_coverage" in results[name, method]:
                print(explain_narrow(results[name, method]["training_coverage"]))
        if "true_coverage" in arrays:
            print(TRUTH.format(*arrays["true_coverage"]))
    print("\nCE: calibration error; compare it with its floor, the expected CE of a perfect model on as many rows.")
    print("sigma corr.: correlation of the predicted and the true standard deviation, where it is known.")
    draw(data, results, folder)
    print(f"\nFigures are in {folder}/: " + ", ".join(sorted(path.name for path in folder.glob("*.png"))))


TRUTH = (
    "  90 % intervals of the true law cover {:.1%} of these training rows and {:.1%} of these test rows;\n"
    "  what is learned from the former is off by that much on the latter."
)
# Intervals that cover so much of the training rows are as wide as they should be there.
ENOUGH_COVERAGE = 0.88


def explain_narrow(training_coverage: float) -> str:
    """Why intervals are too narrow on test rows, by what they cover of the training rows."""
    reason = (
        "the method has fitted these rows too closely, as happens with few rows and much noise"
        if training_coverage >= ENOUGH_COVERAGE
        else "its sigma does not reflect the noise of y, not even where it was trained"
    )
    return f"{'':15}Why: its intervals cover {training_coverage:.1%} of the training rows; {reason}."


DATA_TITLES = {
    "diabetes": "Diabetes progression (scikit-learn)",
    "synthetic": "Synthetic, noise grows twentyfold with x",
}


def diabetes() -> Arrays:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.35, random_state=DEMO_SEED)
    return {"X_train": X_train, "y_train": y_train, "X": X_test, "y": y_test}


def synthetic() -> Arrays:
    train, test = heteroscedastic(800, seed=DEMO_SEED), heteroscedastic(1000, seed=DEMO_SEED + 1)
    arrays = {"X_train": train.X, "y_train": train.y, "X": test.X, "y": test.y, "true_std": test.std}
    inside = [np.abs(rows.y - rows.mean) < 1.645 * rows.std for rows in (train, test)]
    return {**arrays, "true_coverage": np.array([rows.mean() for rows in inside])}


def fit_and_evaluate(arrays: Arrays, method: str) -> dict[str, Any]:
    """Return the metrics, predictions and history of one method on one data set."""
    start = perf_counter()
    model = make(method, random_state=DEMO_SEED).fit(arrays["X_train"], arrays["y_train"])
    prediction = model.predict_dist(arrays["X"])
    mean, std = prediction.mean, prediction.std
    result: dict[str, Any] = {**evaluate(arrays["y"], prediction), "seconds": perf_counter() - start}
    if judge(arrays["y"], prediction).finding == "narrow":
        result["training_coverage"] = coverage(arrays["y_train"], model.predict_dist(arrays["X_train"]))
    if "true_std" in arrays:
        result[CORRELATION] = np.corrcoef(std, arrays["true_std"])[0, 1]
    return {**result, "prediction": prediction, "mean": mean, "std": std, "history": model.history_}


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """An aligned table; columns without any value are omitted."""
    names = [name for name in HEADINGS if any(name in result for _, result in rows)]
    lines = ["  ".join(["method      ", *(f"{HEADINGS[name]:>11}" for name in names)])]
    for title, result in rows:
        cells = [fixed(result[name]) if name in result else "" for name in names]
        lines.append("  ".join([f"{title:<12}", *(f"{cell:>11}" for cell in cells)]))
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:], rule])


def draw(data: dict[str, Arrays], results: dict[tuple[str, str], dict[str, Any]], folder: Path) -> None:
    """Draw one figure per question, without a display."""
    from matplotlib.figure import Figure

    from hetcal import plots

    for name, arrays in data.items():
        figure = Figure(figsize=(5.5, 5), layout="constrained")
        ax = figure.add_subplot()
        for method in FITTED:
            result = results[name, method]
            plots.plot_calibration(arrays["y"], result["prediction"], label=METHODS[method].title, ax=ax)
        ax.set_title(DATA_TITLES[name])
        figure.savefig(folder / f"{name}-calibration.png", dpi=150)

        result = results[name, "dropout_hc"]
        truth = arrays["y"], result["mean"], result["std"]
        figure = Figure(figsize=(11, 8), layout="constrained")
        axes = figure.subplots(2, 2)
        plots.plot_intervals(*truth, ax=axes[0, 0])
        plots.plot_residual_vs_std(*truth, ax=axes[0, 1])
        for method in ("mc_dropout", "dropout_hc"):
            plots.plot_std_distribution(results[name, method]["std"], label=METHODS[method].title, ax=axes[1, 0])
        plots.plot_history(result["history"], ax=axes[1, 1])
        figure.suptitle(f"Dropout-HC: {DATA_TITLES[name]}")
        figure.savefig(folder / f"{name}-dropout-hc.png", dpi=150)

    draw_before_and_after(folder / "before-and-after.png")


def draw_before_and_after(path: Path) -> None:
    """Draw the same estimator before and after calibration, along one input: the figure of the README."""
    from matplotlib.figure import Figure

    train = heteroscedastic(1200, seed=DEMO_SEED)
    x = np.linspace(-1, 1, 200)
    line = np.column_stack([x, np.zeros_like(x)])
    true_mean, true_std = 2 * np.sin(2 * x), 0.05 + 0.475 * (x + 1)
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = {
        "mc_dropout": "MC Dropout: trained on squared error",
        "dropout_hc": "Dropout-HC: its sigma in the likelihood",
    }
    test = heteroscedastic(1000, seed=DEMO_SEED + 1)
    for ax, (method, title) in zip(axes, titles.items(), strict=True):
        model = make(method, random_state=DEMO_SEED).fit(train.X, train.y)
        lower, upper = model.predict_interval(line, level=0.9).T
        mean, std = model.predict(test.X, return_std=True)
        judged = evaluate(test.y, mean, std)
        correlation = np.corrcoef(std, test.std)[0, 1]
        ax.scatter(train.X[:, 0], train.y - train.X[:, 1], s=4, color="0.6", label="training rows")
        ax.fill_between(x, lower, upper, color="tab:blue", alpha=0.3, label="predicted 90 % interval")
        for sign in (-1, 1):
            label = "true 90 % interval" if sign > 0 else None
            ax.plot(x, true_mean + sign * 1.645 * true_std, color="black", linestyle="--", linewidth=1.2, label=label)
        ax.set(title=title, xlabel="x")
        ax.text(
            0.02,
            0.98,
            f"CE {judged['ce']:.2f} (a perfect model has {judged['ce_noise_floor']:.2f})\n"
            f"correlation with the true sigma {correlation:.2f}",
            transform=ax.transAxes,
            verticalalignment="top",
        )
    axes[0].set_ylabel("y")
    axes[1].legend(loc="lower right", fontsize="small")
    figure.savefig(path, dpi=150)
