"""All metrics at once: the list of metrics and what `evaluate` makes of it."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

from hetcal import metrics
from hetcal.metrics import METRICS


@pytest.fixture(scope="module")
def triple():
    """Rows with a little of everything: narrow and wide, inside and far outside, no two std alike."""
    generator = np.random.default_rng(0)
    mean, std = generator.normal(5, 3, 300), np.exp(generator.normal(0, 1, 300))
    return mean + 1.4 * std * generator.standard_t(4, 300), mean, std


class TestEvaluate:
    """Everything at once."""

    def test_values_are_those_of_the_single_metrics(self, triple):
        """The dict has these keys, and no key holds another metric."""
        y, mean, std = triple
        assert metrics.evaluate(y, mean, std) == {
            "n": 300,
            "rmse": metrics.rmse(y, mean),
            "mae": metrics.mae(y, mean),
            "ce": metrics.ce(y, mean, std),
            "ce_noise_floor": metrics.ce_noise_floor(300),
            "nll": metrics.nll(y, mean, std),
            "crps": metrics.crps(y, mean, std),
            "sharpness": metrics.sharpness(y, mean, std),
            "coverage_90": metrics.coverage(y, mean, std, level=0.9),
            "interval_width_90": metrics.interval_width(y, mean, std, level=0.9),
            "interval_score_90": metrics.interval_score(y, mean, std, level=0.9),
            "pinball_loss": metrics.pinball_loss(y, mean, std, quantiles=(0.05, 0.25, 0.5, 0.75, 0.95)),
            "ence": metrics.ence(y, mean, std, bins=10),
            "conditional_coverage_error": metrics.conditional_coverage_error(y, mean, std, level=0.9, bins=10),
            "verdict": str(metrics.judge(y, mean, std)),
        }

    def test_plain_types(self):
        """Goes into JSON as it is, and one row is enough."""
        result = metrics.evaluate([1.0], [1.5], [2.0])
        assert json.loads(json.dumps(result)) == result
        assert {type(value) for value in result.values()} == {int, float, str}

    def test_metrics_import_nothing_heavy(self):
        """Anyone can judge anyone's predictions without paying for torch, scikit-learn or matplotlib."""
        code = "import sys, hetcal.metrics; print({'torch', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"


def test_keys_are_the_names_of_the_functions():
    """A metric has one name: the key is that of its function, with the level behind it where there is one."""
    for key, metric in METRICS.items():
        if key != "ce_noise_floor":  # a function of the number of rows alone
            name = key.removesuffix("_90")
            assert metric.function is getattr(metrics, name)
            assert ("level" in inspect.signature(metric.function).parameters) == (
                key.endswith("_90") or name == "conditional_coverage_error"
            )


def test_every_metric_is_explained():
    for metric in METRICS.values():
        assert metric.heading
        assert metric.title
        assert metric.meaning
        assert metric.better in ("low", "near", "")
