"""Every warning and error class of hetcal, so that a user can silence or catch exactly one of them."""

from typing import TYPE_CHECKING, Any


class HetcalWarning(UserWarning):
    """Base class of every warning of hetcal."""


class CalibrationRowsWarning(HetcalWarning):
    """There are too few calibration rows for the requested level."""


class DegenerateDataWarning(HetcalWarning):
    """There is nothing to learn from the data: y is constant, or no column varies."""


class DropoutInsertedWarning(HetcalWarning):
    """The user's network has no dropout layer, so dropout layers were inserted."""


class InspectionWarning(HetcalWarning):
    """Something in the table makes results misleading unless an option answers it, such as dates in a random split."""


class OtherTargetWarning(HetcalWarning):
    """A model is evaluated on a column other than the one that it was fitted to predict."""


class OutsideRangeWarning(HetcalWarning):
    """Rows lie far outside the range of the training rows, where the quality of predictions is unknown."""


class SharedGroupsWarning(HetcalWarning):
    """Test rows belong to groups that were in the training rows; the model may do worse on new groups."""


class TrainingRowsWarning(HetcalWarning):
    """A model is evaluated on the rows that it was trained on, which look better than new rows."""


class SharedRowsWarning(HetcalWarning):
    """Test rows are copies of training rows, so that the model looks better than it is."""


class UnseenLabelsWarning(HetcalWarning):
    """Rows contain labels that did not occur in training; they are treated as unknown."""


class TrainingDivergedError(ValueError):
    """The loss stayed non-finite although the learning rate was reduced repeatedly."""


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C ended training, and what was fitted has the weights of its best epoch so far.

    It is a KeyboardInterrupt, so that it also ends everything around the fit, such as a cross-validation. An interrupt
    before the first epoch is finished is a plain KeyboardInterrupt: then nothing is fitted.

    Attributes:
        history: The `History` of the training that was interrupted.
    """

    def __init__(self, history: Any) -> None:
        super().__init__("training was interrupted; the best weights so far are kept")
        self.history = history


class ModelFileError(ValueError):
    """The file is not a hetcal model file, or it is damaged, or it was tampered with."""


if TYPE_CHECKING:

    class TrainingWarning(HetcalWarning):
        """What `__getattr__` makes."""


def __getattr__(name: str) -> Any:
    """Make `TrainingWarning` on first use: it is a `ConvergenceWarning` of scikit-learn, which metrics do not need."""
    if name != "TrainingWarning":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import ConvergenceWarning

    text = "Training ended too early, or what was trained is no better than the mean of y."
    content = {"__module__": __name__, "__doc__": text}
    globals()[name] = made = type(name, (HetcalWarning, ConvergenceWarning), content)
    return made
