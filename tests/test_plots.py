"""Pictures: what is drawn, not how it looks. Labels with units, legends, thinning, and no trace outside of the axes."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

from hetcal import plots
from hetcal.distributions import TransformedPrediction
from hetcal.families import Laplace
from hetcal.metrics import calibration_curve, ce, ce_noise_floor, coverage
from hetcal.prediction import Prediction
from hetcal.transforms import Log

N = 250


@pytest.fixture(scope="module")
def triple():
    generator = np.random.default_rng(0)
    mean, std = generator.normal(20, 10, N), np.exp(generator.normal(0, 0.5, N))
    return generator.normal(mean, std), mean, std


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def history(train=(3.0, 2.0, 1.5, 1.2), validation=(3.1, 2.5, 2.2, 2.4), best_epoch=2):
    return SimpleNamespace(
        train={"objective": list(train)}, validation={"objective": list(validation)}, best_epoch=best_epoch
    )


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line_of(ax, label):
    """The one line whose legend entry begins so."""
    (line,) = [line for line in ax.lines if str(line.get_label()).startswith(label)]
    return line


DRAW = {
    "calibration": lambda triple, ax: plots.plot_calibration(*triple, ax=ax),
    "intervals": lambda triple, ax: plots.plot_intervals(*triple, ax=ax),
    "std_distribution": lambda triple, ax: plots.plot_std_distribution(triple[2], ax=ax),
    "residual_vs_std": lambda triple, ax: plots.plot_residual_vs_std(*triple, ax=ax),
    "history": lambda triple, ax: plots.plot_history(history(), ax=ax),
}


@pytest.mark.parametrize("name", DRAW)
class TestEveryPlot:
    """What all of them promise."""

    def test_axes_of_its_own_or_given(self, triple, name):
        """Without ax a new figure; with ax no other figure, and the very same axes back."""
        own = DRAW[name](triple, None)
        assert isinstance(own, Axes)
        assert len(pyplot.get_fignums()) == 1
        _, (left, right) = pyplot.subplots(1, 2)
        assert DRAW[name](triple, right) is right
        assert not left.has_data()
        assert len(pyplot.get_fignums()) == 2

    def test_labels_and_legend(self, triple, name):
        """Both axes say what they show; every entry of the legend has words."""
        ax = DRAW[name](triple, None)
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert len(legend_of(ax)) >= 1
        assert all(legend_of(ax))

    def test_no_global_state(self, triple, name):
        """The user's settings stay, and the data do too."""
        settings, before = dict(matplotlib.rcParams), [values.copy() for values in triple]
        DRAW[name](triple, None)
        assert dict(matplotlib.rcParams) == settings
        assert_array_equal(triple, before)

    @pytest.mark.parametrize("scale", [1e-12, 1e12])
    def test_draws_in_far_units(self, triple, name, scale):
        """Rendered to the last pixel without a warning (warnings are errors)."""
        DRAW[name]([scale * values for values in triple], None).figure.canvas.draw()

    def test_draws_one_row(self, triple, name):
        """A single row is a picture, too."""
        DRAW[name]([values[:1] for values in triple], None).figure.canvas.draw()


DRAW_PREDICTION = {
    "calibration": plots.plot_calibration,
    "intervals": plots.plot_intervals,
    "residual_vs_std": plots.plot_residual_vs_std,
}


def lognormal(mean, std):
    """A skewed prediction, and a truth from it."""
    prediction = TransformedPrediction(Prediction(mean / 20, std / 2), Log())
    return np.exp(np.random.default_rng(1).normal(mean / 20, std / 2)), prediction


@pytest.mark.parametrize("name", DRAW_PREDICTION)
class TestPredictions:
    """A prediction in place of mean and std."""

    def test_gaussian_prediction_draws_the_same(self, triple, name):
        """Line by line."""
        y, mean, std = triple
        by_arrays, by_prediction = DRAW_PREDICTION[name](*triple), DRAW_PREDICTION[name](y, Prediction(mean, std))
        assert len(by_arrays.lines) == len(by_prediction.lines) > 0
        for one, other in zip(by_arrays.lines, by_prediction.lines, strict=True):
            assert_array_equal(one.get_xydata(), other.get_xydata())
        assert legend_of(by_arrays) == legend_of(by_prediction)

    def test_transformed_prediction_is_drawn(self, triple, name):
        """To the last pixel, in the units of y."""
        DRAW_PREDICTION[name](*lognormal(*triple[1:])).figure.canvas.draw()

    def test_several_targets_are_refused(self, triple, name):
        """Before a figure appears, with what to do."""
        y, mean, std = (np.column_stack([values, values]) for values in triple)
        message = (
            rf"y must be one-dimensional, got y='array of shape \({N}, 2\)'; "
            r"pass one target at a time: y\[:, 0\] with prediction.target\(0\)"
        )
        for given in ((mean, std), (Prediction(mean, std),)):
            with pytest.raises(ValueError, match=message):
                DRAW_PREDICTION[name](y, *given)
        assert pyplot.get_fignums() == []
        DRAW_PREDICTION[name](y[:, 0], Prediction(mean, std).target(0))


def test_calibration_follows_the_family(triple):
    """The curve and the CE in the legend are those of the family, not of a Gaussian."""
    y, mean, std = triple
    prediction = Prediction(mean, std, family=Laplace())
    line = line_of(plots.plot_calibration(y, prediction), "model")
    assert_array_equal(line.get_ydata(), calibration_curve(y, prediction).coverage)
    assert f"CE {ce(y, prediction):.3f}" in line.get_label()


@pytest.mark.parametrize("level", [0.05, 0.9])
def test_intervals_of_a_transformed_prediction_are_not_symmetric(triple, level):
    """The bars end where the interval ends; the median is inside also where the mean of a skewed row is not."""
    y, prediction = lognormal(*triple[1:])
    ax = plots.plot_intervals(y, prediction, level=level, max_rows=N)
    order = np.argsort(prediction.quantile(0.5))
    segments = np.array(ax.containers[0].lines[2][0].get_segments())
    assert_allclose(segments[:, :, 1], prediction.interval(level)[order], rtol=1e-9)
    assert_allclose(ax.containers[0].lines[0].get_ydata(), prediction.quantile(0.5)[order])
    inside = line_of(ax, "true value inside")
    assert_allclose(len(inside.get_xdata()) / N, coverage(y, prediction, level=level))
    assert f"median and {100 * level:g} % interval" in legend_of(ax)
    assert ax.get_xlabel() == "Rows, sorted by predicted median"


def test_calibration_draws_the_curve_and_its_band(triple):
    """The line is the observed coverage, the legend states the CE, the band is that of `calibration_curve`."""
    ax = plots.plot_calibration(*triple, label="ours", confidence=0.9)
    curve = calibration_curve(*triple, confidence=0.9)
    line = line_of(ax, "ours")
    assert_allclose(line.get_xdata(), curve.levels)
    assert_allclose(line.get_ydata(), curve.coverage)
    floor = ce_noise_floor(len(triple[0]))
    assert line.get_label() == f"ours (CE {ce(*triple):.3f}, floor {floor:.3f})"
    corners = ax.collections[0].get_paths()[0].vertices
    assert_allclose(np.unique(corners[:, 1]), np.unique([curve.lower, curve.upper]))
    assert any("90 %" in text for text in legend_of(ax))


def test_calibration_compares_methods_on_one_axes(triple):
    """Diagonal and band once; each method has dashes and marker of its own, for a gray print."""
    y, mean, std = triple
    ax = None
    for k in range(len(plots.LOOKS)):
        ax = plots.plot_calibration(y, mean, std * (0.5 + k / 4), label=f"method {k}", ax=ax)
    assert len(ax.collections) == 1
    assert legend_of(ax).count("calibrated") == 1
    lines = [line_of(ax, f"method {k}") for k in range(len(plots.LOOKS))]
    assert len({(line.get_linestyle(), str(line._dash_pattern)) for line in lines}) == len(plots.LOOKS)
    assert len({line.get_marker() for line in lines}) == len(plots.LOOKS)


def test_calibration_on_axes_that_hold_something_else(triple):
    """A line of the user's own on the axes must not be taken for the diagonal."""
    _, ax = pyplot.subplots()
    ax.plot([0, 1], [0, 0.5], label="mine")
    plots.plot_calibration(*triple, ax=ax)
    assert len(ax.collections) == 1
    assert legend_of(ax).count("calibrated") == 1


def test_intervals_mark_rows_outside_by_shape(triple):
    """All rows, sorted by mean; inside and outside add up, differ in marker, and agree with `coverage`."""
    y, mean, _ = triple
    ax = plots.plot_intervals(*triple, level=0.8, max_rows=N)
    inside, outside = line_of(ax, "true value inside"), line_of(ax, "true value outside")
    assert inside.get_marker() != outside.get_marker()
    assert_allclose(len(inside.get_xdata()) / N, coverage(*triple, level=0.8))
    assert_array_equal(np.sort(np.r_[inside.get_ydata(), outside.get_ydata()]), np.sort(y))
    data_line = ax.containers[0].lines[0]
    assert_array_equal(data_line.get_ydata(), np.sort(mean))
    assert ax.get_xlabel() == "Rows, sorted by predicted mean"
    assert "mean and 80 % interval" in legend_of(ax)
    assert ax.get_ylabel() == "Target (units of y)"


def test_intervals_are_as_wide_as_they_say(triple):
    """The bars end where `Prediction.interval` ends."""
    _, mean, std = triple
    ax = plots.plot_intervals(*triple, level=0.9, max_rows=N)
    segments = np.array(ax.containers[0].lines[2][0].get_segments())
    assert_allclose(np.diff(segments[:, :, 1])[:, 0], (2 * 1.6448536269514722 * std)[np.argsort(mean)], rtol=1e-9)


def test_intervals_thin_evenly_and_say_so(triple):
    """From lowest to highest mean, not the first hundred rows."""
    mean = triple[1]
    ax = plots.plot_intervals(*triple, max_rows=40)
    drawn = ax.containers[0].lines[0].get_ydata()
    assert len(drawn) == 40
    assert (drawn[0], drawn[-1]) == (mean.min(), mean.max())
    assert ax.get_xlabel() == f"40 of {N} rows, sorted by predicted mean"


def test_std_distribution_is_a_density_and_compares_methods(triple):
    """Area one whatever n, and other dashes for the second method."""
    std = triple[2]
    ax = plots.plot_std_distribution(std, label="ours")
    plots.plot_std_distribution(0.5 * std[:50], label="theirs", ax=ax)
    for patch in ax.patches:
        assert_allclose(np.sum(patch.get_data().values * np.diff(patch.get_data().edges)), 1)
    assert ax.patches[0].get_linestyle() != ax.patches[1].get_linestyle()
    assert legend_of(ax) == [f"ours (median {np.median(std):.3g})", f"theirs (median {np.median(0.5 * std[:50]):.3g})"]
    assert ax.get_xlabel() == "Standard deviation (units of y)"


@pytest.mark.parametrize("value", [1e-300, 1.0, 1e17, 1e300])
def test_std_distribution_of_a_constant(value):
    """One value has no range to divide."""
    assert plots.plot_std_distribution(np.full(9, value)).has_data()


def test_residual_vs_std_draws_lines_and_bins(triple):
    """Lines of one and two std, dots at |residual|, and the RMSE of each tenth of the rows."""
    y, mean, std = triple
    ax = plots.plot_residual_vs_std(*triple)
    assert_allclose(np.sort(line_of(ax, "row").get_ydata()), np.sort(np.abs(y - mean)))
    for k, label in ((1, "1 standard deviation"), (2, "2 standard deviations")):
        line = line_of(ax, label)
        assert_allclose(line.get_ydata(), k * np.asarray(line.get_xdata()))
    tenth = np.argsort(std)[: N // 10]
    bins = line_of(ax, "RMSE per bin of std")
    assert len(bins.get_xdata()) == 10
    assert_allclose(bins.get_xdata()[0], np.sqrt(np.mean(std[tenth] ** 2)))
    assert_allclose(bins.get_ydata()[0], np.sqrt(np.mean((y - mean)[tenth] ** 2)))
    assert ax.get_xlabel() == "Standard deviation (units of y)"
    assert ax.get_ylabel() == "Absolute residual (units of y)"
    assert_allclose(ax.get_xlim(), [0.95 * std.min(), 1.05 * std.max()])


def test_residual_vs_std_thins_many_rows():
    """A report with a million dots opens in no browser."""
    generator = np.random.default_rng(0)
    n = 3 * plots.MAX_DOTS
    ax = plots.plot_residual_vs_std(generator.normal(size=n), np.zeros(n), generator.uniform(1, 2, n))
    assert len(line_of(ax, "row").get_xdata()) == plots.MAX_DOTS
    assert f"row ({plots.MAX_DOTS} of {n} shown)" in legend_of(ax)


def test_history_marks_the_best_epoch():
    """The star sits on the validation curve at the epoch that was kept."""
    ax = plots.plot_history(history())
    assert legend_of(ax) == ["training", "validation", "best epoch (2)"]
    assert_allclose(line_of(ax, "training").get_ydata(), [3.0, 2.0, 1.5, 1.2])
    star = line_of(ax, "best epoch")
    assert_allclose([star.get_xdata()[0], star.get_ydata()[0]], [2, 2.2])
    assert line_of(ax, "training").get_linestyle() != line_of(ax, "validation").get_linestyle()


def test_history_without_validation():
    """Empty lists, as they are without validation rows: the star sits on the training curve."""
    ax = plots.plot_history(history(validation=(), best_epoch=3))
    assert legend_of(ax) == ["training", "best epoch (3)"]
    assert_allclose(line_of(ax, "best epoch").get_ydata(), [1.2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.plot_calibration([np.nan], [1], [1]), r"y must be finite, got y=nan"),
        (lambda: plots.plot_intervals([1], [1], [1], level=95), r"level must be between 0 and 1, got level=95"),
        (lambda: plots.plot_intervals([1], [1], [1], max_rows=0), r"max_rows must be at least 1, got max_rows=0"),
        (lambda: plots.plot_std_distribution([0.0]), r"std must be greater than 0, got std=0.0"),
        (lambda: plots.plot_residual_vs_std([1, 2], [1], [1]), r"mean must have as many values as y \(2\)"),
        (
            lambda: plots.plot_history(history(train=())),
            r"history must hold at least one epoch of train\['objective'\], got",
        ),
        (
            lambda: plots.plot_history(history(best_epoch=4)),
            r"best_epoch must be at least 0 and at most 3, got best_epoch=4",
        ),
    ],
)
def test_bad_input_is_named_before_a_figure_appears(call, message):
    """No empty window is left behind by an error."""
    with pytest.raises(ValueError, match=message):
        call()
    assert pyplot.get_fignums() == []


def test_without_matplotlib_the_error_says_how_to_get_it():
    """An extra that is not installed is named, with the command; torch is not asked for at all."""
    code = """
import sys
sys.modules["matplotlib"] = None
try:
    import hetcal.plots
except ImportError as error:
    print(error, "| torch" if "torch" in sys.modules else "")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "hetcal.plots needs matplotlib; install it with: pip install 'hetcal[plots]'"
