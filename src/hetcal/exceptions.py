"""Every warning and error class of hetcal, so that a user can silence or catch exactly one of them."""


class HetcalWarning(UserWarning):
    """Base class of every warning of hetcal."""


class CalibrationRowsWarning(HetcalWarning):
    """There are too few calibration rows for the level asked for."""


class DegenerateDataWarning(HetcalWarning):
    """The data leave nothing to learn: constant y, or no column that varies."""


class DropoutInsertedWarning(HetcalWarning):
    """A user's network had no dropout layer, so some were inserted."""


class OtherTargetWarning(HetcalWarning):
    """A model is judged on another column than it was fitted to predict."""


class OutsideRangeWarning(HetcalWarning):
    """Rows lie far outside the range of the training rows; nobody knows how good predictions are there."""


class SharedGroupsWarning(HetcalWarning):
    """Test rows belong to groups that training has seen; for new groups the model may do worse."""


class TrainingWarning(HetcalWarning):
    """Training did not run its course: interrupted, or rescued from a non-finite loss."""


class UnseenLabelsWarning(HetcalWarning):
    """Rows hold labels that training has not seen; they are predicted as if the label were unknown."""


class TrainingDivergedError(ValueError):
    """The loss stayed non-finite although the learning rate was reduced again and again."""


class ModelFileError(ValueError):
    """The file is no model file of hetcal, or damaged, or not to be trusted."""
