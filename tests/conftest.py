"""What all test folders share: the programs of other people's that some tests run."""

import shutil
from pathlib import Path

import pytest
from not_tested import not_tested

FETCHED_TOOLS = Path(__file__).parents[1] / ".tools" / "bin"


@pytest.fixture(scope="session")
def tool():
    """`tool("promtool")` is the path of a program fetched by tests/tools.sh or on PATH; without it the test is skipped.

    With CI=true nothing is skipped: a missing program fails the test.
    """

    def find(name):
        found = shutil.which(name, path=str(FETCHED_TOOLS)) or shutil.which(name)
        return found or not_tested(f"no {name} on PATH or in .tools/bin; run tests/tools.sh")

    return find
