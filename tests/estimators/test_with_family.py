"""Another likelihood for any estimator: mean and std stay, degrees of freedom are learned."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from hetcal.estimators import Ensemble, MCDropout, QuantileRange, VarianceHead, WithFamily, predict
from hetcal.estimators.with_family import LEAST_DF
from hetcal.families import GAUSSIAN, Laplace, StudentT
from hetcal.networks import MLP
from hetcal.objectives import nll_loss
from hetcal.prediction import Prediction
from hetcal.training import train

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))


def mlp(n_outputs=2, dropout=0.0):
    return MLP(3, n_outputs, width=8, depth=2, dropout=dropout, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("gaussian", GAUSSIAN),
        ("laplace", Laplace()),
        ("student_t", StudentT(6.0)),
        (StudentT(3.5), StudentT(3.5)),
        (Laplace(), Laplace()),
    ],
    ids=str,
)
def test_the_shape_changes_and_nothing_else(family, expected):
    """Mean and std are the estimator's, by `forward` and by `predict`."""
    plain = VarianceHead(mlp())
    other = WithFamily(VarianceHead(mlp()), family)
    for answer in (lambda estimator: estimator(X), lambda estimator: predict(estimator, X)):
        one, two = answer(plain), answer(other)
        assert torch.equal(one.mean, two.mean)
        assert torch.equal(one.std, two.std)
        assert type(two.family) is type(expected)
        assert_allclose(getattr(two.family.numpy(), "df", 0), getattr(expected, "df", 0), rtol=1e-6)


def test_members_of_the_contract():
    """The same number of outputs; own loss, fast prediction and knowledge of the rows are the estimator's."""
    inner = Ensemble(mlp(), members=3)
    outer = WithFamily(inner, "laplace")
    assert outer.n_outputs == 2
    outer.at_rows(torch.arange(20), 20)
    assert inner._batch_weights is not None
    assert outer.own_loss(outer(X), X[:, 0], 20).shape == (20,)
    dropout = MCDropout(mlp(1, dropout=0.2), prediction_samples=5)
    assert_allclose(predict(WithFamily(dropout, "laplace"), X).std, predict(dropout, X).std)
    assert dropout.frozen() is not None
    quantiles = WithFamily(QuantileRange(mlp(3)), "student_t")
    assert quantiles.own_loss(quantiles(X), X[:, 0], 20).shape == (20,)
    quantiles.at_rows(torch.arange(20), 20)  # nobody asks


def test_estimators_without_a_base_class():
    class Homegrown(nn.Module):
        n_outputs = 1

        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, x):
            mean = self.network(x)[:, 0]
            return Prediction(mean, torch.ones_like(mean))

        def own_loss(self, prediction, y, n_train):
            return torch.zeros(())

    estimator = WithFamily(Homegrown(mlp(1)), "student_t")
    train(estimator, nll_loss, X, X[:, 0], max_epochs=2)
    assert isinstance(predict(estimator, X).family, StudentT)


def test_degrees_of_freedom_are_a_parameter_of_their_own():
    """One number for one target, one each for several; none for a family that is given."""
    assert WithFamily(VarianceHead(mlp()), "student_t").raw_df.shape == ()
    several = WithFamily(VarianceHead(mlp(6), n_targets=3), "student_t")
    assert several.raw_df.shape == (3,)
    assert several(X).log_prob(X).shape == (20, 3)
    assert "raw_df" in several.state_dict()
    assert not hasattr(WithFamily(VarianceHead(mlp()), StudentT(4)), "raw_df")


def test_a_variance_always_exists():
    """Whatever training does to the raw value, df stays above 2."""
    estimator = WithFamily(VarianceHead(mlp()), "student_t")
    with torch.no_grad():
        estimator.raw_df.fill_(-1e4)
    assert_allclose(estimator(X).family.numpy().df, LEAST_DF, rtol=1e-6)
    assert torch.isfinite(nll_loss(estimator(X), X[:, 0])).all()


@pytest.mark.parametrize(("truth", "low", "high"), [(4.0, 3.0, 5.5), (1000.0, 12.0, 1e6)])
def test_degrees_of_freedom_are_learned(truth, low, high):
    """4000 rows of noise with 4 degrees of freedom, or of nearly Gaussian noise; they start at 6.

    Maximum likelihood alone has a standard error near 0.3 at 4.
    """
    noise = np.random.default_rng(0).standard_t(truth, size=4000) * np.sqrt((truth - 2) / truth)
    linear = nn.Linear(1, 2)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    estimator = WithFamily(VarianceHead(linear), "student_t")
    settings = {"max_epochs": 60, "learning_rate": 0.05, "batch_size": 500, "validation_fraction": 0}
    train(estimator, nll_loss, torch.zeros(4000, 1), torch.from_numpy(noise).float(), **settings)
    prediction = predict(estimator, torch.zeros(1, 1))
    assert low < prediction.family.numpy().df < high
    assert_allclose(prediction.std, [1.0], rtol=0.15)


def test_unknown_family():
    with pytest.raises(ValueError, match=r"^family must be one of .*, got family='cauchy'"):
        WithFamily(VarianceHead(mlp()), "cauchy")
