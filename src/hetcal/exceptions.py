"""Every warning and error class of hetcal, so that a user can silence or catch exactly one of them."""


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


class TrainingWarning(HetcalWarning):
    """Training ended early because it was interrupted, or because its time was over."""


class UnseenLabelsWarning(HetcalWarning):
    """Rows contain labels that did not occur in training; they are treated as unknown."""


class TrainingDivergedError(ValueError):
    """The loss stayed non-finite although the learning rate was reduced repeatedly."""


class ModelFileError(ValueError):
    """The file is not a hetcal model file, or it is damaged, or it was tampered with."""
