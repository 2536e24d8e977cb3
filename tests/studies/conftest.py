import pytest

from hetcal.studies.protocol import parse_protocol
from hetcal.studies.run import run_protocol
from tests.studies.samples import TINY


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once without interruption, one process at a time. No test changes this folder."""
    folder = tmp_path_factory.mktemp("finished")
    run_protocol(parse_protocol(TINY), folder)
    return folder
