"""Helm and kubectl, built once."""

from pathlib import Path

import pytest
from charts import Helm
from go_program import GoProgram

PROGRAMS = GoProgram(Path(__file__).with_name("programs"), "deployment_programs", "Helm and kubectl")


def pytest_collection_finish(session):
    PROGRAMS.build_before(session)


@pytest.fixture(scope="session")
def deployment_programs(tool):
    """The path of the program that is both."""
    return PROGRAMS.built(tool("go"), print)


@pytest.fixture(scope="session")
def kubectl(deployment_programs):
    """The words before those of a kubectl command."""
    return [deployment_programs, "kubectl"]


@pytest.fixture(scope="session")
def helm(deployment_programs, tmp_path_factory):
    """Helm, on the chart of deploy/helm."""
    return Helm(deployment_programs, tmp_path_factory.mktemp("helm"))
