"""One booted machine, on which devherd is installed as docs/install.md says."""

import os
import shutil

import pytest
import scratch
from booted_machine import BootedMachine, pristine_root, wheelhouse

# Minutes, and root's: only `make systemd` asks for them.
collect_ignore_glob = [] if os.environ.get("DEVHERD_TEST_SYSTEMD") else ["test_*.py"]


@pytest.fixture(scope="session")
def machine(tool):
    """A machine that has booted, with a wheel and what it needs in /wheels."""
    pristine, nspawn = pristine_root(tool("debootstrap")), tool("systemd-nspawn")
    wheels = scratch.directory()
    try:
        made = BootedMachine(nspawn, pristine, wheelhouse(wheels))
        try:
            made.boot()
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(wheels)
