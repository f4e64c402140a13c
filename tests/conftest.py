"""What all test folders share: other people's programs that some tests run, and the place of temporary files."""

import shutil
import tempfile
from pathlib import Path

import pytest
import scratch
from hypothesis import settings
from not_tested import not_tested

FETCHED_TOOLS = Path(__file__).parents[1] / ".tools" / "bin"

settings.register_profile("devherd", deadline=None)  # a busy machine is no defect
settings.load_profile("devherd")

tempfile.tempdir = str(scratch.place())  # also where pytest puts what tmp_path names


@pytest.fixture(scope="session")
def tool():
    """`tool("promtool")` is the path of a program fetched by tests/tools.sh or on PATH; without it the test is skipped.

    With CI=true nothing is skipped: a missing program fails the test.
    """

    def find(name):
        found = shutil.which(name, path=str(FETCHED_TOOLS)) or shutil.which(name)
        return found or not_tested(f"no {name} on PATH or in .tools/bin; run tests/tools.sh")

    return find
