"""Every estimator with every objective and every family: only `Prediction` connects them, so all must work."""

import pytest
import torch
from numpy.testing import assert_allclose

from hetcal.estimators import ESTIMATORS, Ensemble, VarianceHead, WithFamily, predict
from hetcal.estimators.passes import SampledPasses
from hetcal.families import FAMILIES
from hetcal.networks import MLP
from hetcal.objectives import OBJECTIVES
from hetcal.training import train

D, N = 3, 16
# Those that the degrees of freedom of Student's t are no part of.
WITHOUT_FAMILY = ("squared_error", "gaussian_nll")
pytestmark = [
    pytest.mark.parametrize("family", sorted(FAMILIES)),
    pytest.mark.parametrize("objective", sorted(OBJECTIVES)),
    pytest.mark.parametrize("name", sorted(ESTIMATORS)),
]


def make(name, family, n_targets=1, seed=0):
    kind = ESTIMATORS[name]
    generator = torch.Generator().manual_seed(1)
    network = MLP(D, n_targets * kind.n_outputs, width=8, depth=1, dropout=0.2, generator=generator)
    few = {}
    if issubclass(kind, SampledPasses):
        few = {"samples": 5, "prediction_samples": 6}
    elif name in ("ensemble", "ensemble_spread"):
        few = {"members": 4}  # most of the time would be spent copying them
    return WithFamily(kind(network, n_targets=n_targets, seed=seed, **few), family)


def rows(n, n_targets=1):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, D, generator=generator)
    y = x[:, :1] + 0.3 * torch.randn(n, n_targets, generator=generator)
    return x, y[:, 0] if n_targets == 1 else y


def losses(estimator, objective, x, y):
    prediction = estimator(x)
    return OBJECTIVES[objective](prediction, y), estimator.own_loss(prediction, y, N)


def last_layer(estimator):
    """Gradient of the weights of the last layer, (..., outputs, inputs)."""
    return [value.grad for value in estimator.parameters() if value.ndim >= 2 and value.shape[-1] == 8][-1]


@pytest.mark.parametrize("n_targets", [1, 3])
def test_shapes_losses_and_gradients(name, objective, family, n_targets):
    """One loss per row and target, all finite, and gradients in every parameter that the objective trains."""
    for training in (False, True):
        estimator = make(name, family, n_targets).train(training)
        x, y = rows(N, n_targets)
        objective_rows, own_rows = losses(estimator, objective, x, y)
        assert objective_rows.shape == y.shape
        assert own_rows.shape in ((), y.shape)
        assert torch.isfinite(objective_rows).all()
        assert torch.isfinite(own_rows).all()
    (objective_rows.mean() + own_rows.mean()).backward()
    for key, parameter in estimator.named_parameters():
        if key == "raw_df" and objective in WITHOUT_FAMILY and name != "ensemble":  # whose members have a likelihood
            assert parameter.grad is None
        else:
            assert torch.isfinite(parameter.grad).all()
            assert parameter.grad.any()
    by_output = last_layer(estimator).abs().sum(-1).unflatten(-1, (n_targets, -1))  # (..., n_targets, n_outputs)
    if ESTIMATORS[name] is VarianceHead and objective == "squared_error":
        assert (by_output[..., 0] > 0).all()
        assert (by_output[..., 1] == 0).all()  # sigma is left alone
    else:
        assert (by_output > 0).all()


def test_one_row(name, objective, family):
    """A batch of one row has a finite loss and finite gradients."""
    estimator = make(name, family).train()
    objective_rows, own_rows = losses(estimator, objective, *rows(1))
    assert objective_rows.shape == (1,)
    (objective_rows + own_rows).mean().backward()
    for parameter in estimator.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_training(name, objective, family):
    """The same seed gives the same bits, another seed or other weights another model; the family stays."""
    x, y = rows(N, 2)
    heavy = torch.where(torch.arange(N) < N / 2, 10.0, 1.0)
    predictions = []
    for seed, weight in ((0, None), (0, None), (1, None), (0, heavy)):
        estimator = make(name, family, n_targets=2, seed=seed)
        settings = {"max_epochs": 2, "validation_fraction": 0, "learning_rate": 0.1, "batch_size": 8}
        train(estimator, OBJECTIVES[objective], x, y, sample_weight=weight, seed=seed, **settings)
        predictions.append(predict(estimator, x))
    first, again, other, weighted = predictions
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert not torch.equal(first.mean, other.mean)
    assert (first.mean - weighted.mean).abs().max() > 1e-4
    assert first.family.name == family
    assert first.mean.shape == first.std.shape == y.shape
    if first.epistemic_std is not None:
        assert ESTIMATORS[name] is Ensemble
        assert_allclose(first.epistemic_std**2 + first.aleatoric_std**2, first.std**2, rtol=1e-4)
