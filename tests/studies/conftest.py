import pytest

from hetcal.studies.protocol import parse_protocol
from hetcal.studies.run import run
from tests.studies.samples import TINY


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once without a break by one process at a time. Nobody changes this folder."""
    folder = tmp_path_factory.mktemp("finished")
    run(parse_protocol(TINY), folder)
    return folder
