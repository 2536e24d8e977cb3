import pytest

from hetcal.benchmark.protocol import parse_protocol
from hetcal.benchmark.run import run
from tests.studies import TINY


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once without a break by one process at a time. Nobody changes this folder."""
    folder = tmp_path_factory.mktemp("finished")
    run(parse_protocol(TINY), folder)
    return folder
