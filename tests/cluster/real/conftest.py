"""The programs and images of a real cluster, made once, and clusters with them."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import scratch
from chosen import cgroup_driver, older_containerd
from figures import FIGURES, table
from go_program import SAMPLE_PLUGIN, GoProgram
from images import Images
from not_tested import not_tested
from real_cluster import RealCluster
from real_machine import RealMachine

ROOT = Path(__file__).parents[3]
RUNTIME = GoProgram(
    Path(__file__).with_name("runtime"),
    "runtime",
    "containerd",
    tuple(
        f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    "no_btrfs,no_devmapper,no_zfs,no_tracing",
    f"releases/v{older_containerd()}.mod" if older_containerd() else "",
)


def pytest_collection_finish(session):
    cgroup_driver()  # before minutes go by


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    RUNTIME.build_before(item)
    SAMPLE_PLUGIN.build_before(item)
    return (yield)


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("measured")
        for line in table():
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def runtime(tool):
    """The directory of containerd's programs."""
    return RUNTIME.built(tool("go"), print)


@pytest.fixture(scope="session")
def sample_plugin(tool):
    """The path of Kubernetes' sample device plugin: example.com/resource with the devices Dev-1 and Dev-2."""
    return SAMPLE_PLUGIN.built(tool("go"), print)


@pytest.fixture(scope="session")
def images(tool, image_python):
    """Archives: of users' pods, and of devherd as `devherd:1` and `devherd:2`."""
    directory = scratch.directory()
    try:
        made = Images(tool("buildah"), tool("busybox"), directory)
        yield [made.small(), *made.devherd(made.wheel(), image_python, "1", "2")]
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def image_python():
    """The prefix of an installed Python of the image's version."""
    wanted = made_for()
    candidates = [shutil.which(f"python{wanted}"), *Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python{wanted}")]
    for candidate in filter(None, candidates):
        prefix = [candidate, "-c", "import sys; print(sys.base_prefix)"]
        done = subprocess.run(prefix, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Path(done.stdout.strip())
    return not_tested(f"Python {wanted}, which the image has, is not installed here")


def made_for():
    """The version of Python of the image."""
    [line] = [
        line
        for line in (ROOT / "deploy/Containerfile").read_text().splitlines()
        if line.startswith("ARG PYTHON_IMAGE=")
    ]
    return line.rpartition("python:")[2].partition("-")[0]


@pytest.fixture(scope="module")
def make_cluster(programs, runtime, images, tool, kubectl):
    """`make_cluster(preset)` is a cluster of one node with this hardware, and without devherd."""
    made = []

    def make(preset):
        # On disk, where a node has its images: pages of theirs that a pod reads are to count as its memory.
        directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
        made.append(lambda: shutil.rmtree(directory))
        try:
            machine = RealMachine(directory, preset, systemd=cgroup_driver() == "systemd")
        except OSError as error:
            not_tested(f"a machine of its own takes root, namespaces and cgroups: {error}")
        made.append(machine.close)
        cluster = RealCluster(machine, programs, runtime, Path(tool("runc")), kubectl, cgroup_driver=cgroup_driver())
        cluster.start(images)
        return cluster

    yield make
    for undo in reversed(made):
        undo()
