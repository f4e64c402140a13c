"""Stub libraries, compiled when first asked for."""

import pytest
from nvml_stub import Stub, compiled


@pytest.fixture(scope="session")
def libraries(tool, tmp_path_factory):
    """`libraries("OLD_DRIVER")`: the stub with these definitions, compiled once."""
    made = {}

    def library(*definitions):
        if definitions not in made:
            made[definitions] = compiled(
                tool("cc"), tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1", *definitions
            )
        return made[definitions]

    return library


@pytest.fixture
def stub(libraries, tmp_path):
    """A stub library with no GPU yet."""
    return Stub(libraries(), tmp_path / "nvml.txt").write()
