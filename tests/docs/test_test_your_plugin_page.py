"""docs/test-your-plugin.md: its plugin is one, its commands work in the order of the page, its tests pass."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import scratch

PAGE = (Path(__file__).parents[2] / "docs/test-your-plugin.md").read_text()
PYTHON = str(Path(sys.executable).parent)


def blocks(language):
    """The code of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def place(monkeypatch):
    """A directory with the page's plugin; temporary directories are made there, and `python` is ours."""
    directory = scratch.directory()
    (directory / "plugin.py").write_text(blocks("python")[0])
    environment = {"PATH": f"{PYTHON}:/usr/bin:/bin", "TMPDIR": str(directory), "HOME": str(directory)}
    yield directory, environment
    shutil.rmtree(directory)


def run(place, *command):
    """Run in that directory, in a group of its own that ends with it."""
    directory, environment = place
    output, errors = (
        directory / "output",
        directory / "errors",
    )  # no pipes: what is left in the background has them, too
    with output.open("w") as said, errors.open("w") as complained:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=said, stderr=complained, start_new_session=True
        )
    try:
        process.wait(timeout=100)
    finally:
        _end_session(process.pid)
    return process.returncode, output.read_text(), errors.read_text()


def _end_session(session):
    """All processes of it: each job of a shell is a group of its own."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(status.parent.name), signal.SIGKILL)


BY_HAND, FIXED_PATH, CONTAINER, FAULTS = blocks("sh")


def test_the_commands_of_the_page_work_in_their_order(place):
    """As in a shell: each succeeds, and nothing is found amiss with the page's plugin."""
    code, said, complained = run(place, "bash", "-mec", BY_HAND)
    assert code == 0, said + complained
    assert "example.com/gpu: 2 of 2 devices are allocatable" in said
    assert "no findings" in said
    assert '"kind": "registered", "resource": "example.com/gpu"' in said


def test_the_commands_for_a_fixed_path_work_in_their_order(place):
    """The plugin is at the usual path, and its end is noticed; a container gets the same directory."""
    code, said, complained = run(place, "bash", "-mec", FIXED_PATH)
    assert code == 0, said + complained
    assert said.splitlines() == [
        "example.com/gpu: 2 of 2 devices are allocatable",
        "example.com/gpu: no plugin is connected",
    ]
    assert '-v "$DEVHERD_KUBELET_DIR:/var/lib/kubelet"' in CONTAINER


def test_the_faults_of_the_page_are_met_and_survived(place):
    """In their order; the page's plugin tries again."""
    code, said, complained = run(place, "bash", "-mec", FAULTS)
    assert code == 0, said + complained
    assert said.count("2 of 2 devices are allocatable") >= 1
    assert complained.splitlines().count("not now") == 2


def test_the_tests_of_the_page_pass(place):
    """With the fixture that pytest finds where devherd is installed."""
    directory, _ = place
    (directory / "test_plugin.py").write_text(blocks("python")[1])
    code, said, _ = run(place, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plugin.py")
    assert (code, "3 passed" in said) == (0, True), said


def test_the_tests_of_the_page_end_when_the_plugin_does_not_register(place):
    """With what is so as the error."""
    directory, _ = place
    (directory / "plugin.py").write_text("import time; time.sleep(1000)")
    (directory / "test_plugin.py").write_text(blocks("python")[1])
    words = ["-q", "-k", "container_gets", "-p", "no:cacheprovider", "test_plugin.py"]
    code, said, _ = run(place, "python", "-m", "pytest", *words)
    assert (code, "its plugin has not called Register" in said, "1 error" in said) == (1, True, True), said


def test_the_commands_for_ci_work(place):
    """Those that are devherd's, with the directory of the job's environment."""
    directory, environment = place
    [job] = blocks("yaml")
    commands = re.search(r"- run: \|\n((?: {10}.*\n)+)", job)[1].replace("/tmp/kubelet", str(directory / "kubelet"))
    assert "DEVHERD_KUBELET_DIR: /tmp/kubelet" in job
    environment |= {"DEVHERD_KUBELET_DIR": str(directory / "kubelet")}
    code, said, complained = run(place, "bash", "-ec", re.sub("^ {10}", "", commands, flags=re.MULTILINE))
    assert (code, said.splitlines()[-1]) == (0, "no findings"), complained


@pytest.mark.timeout(600)
def test_the_test_in_go_passes(place, tool):
    """As it stands, in a module of its own that needs no other; Go's compiled packages are those of its usual cache."""
    directory, environment = place
    go = tool("go")
    module = directory / "module"  # TMPDIR itself may be none
    module.mkdir()
    (directory / "plugin.py").rename(module / "plugin.py")
    (module / "plugin_test.go").write_text(blocks("go")[0])
    (module / "go.mod").write_text("module example.com/plugin\n\ngo 1.22\n")
    cache = subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    environment |= {"GOCACHE": cache, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    unformatted = subprocess.run([Path(go).with_name("gofmt"), "-l", module], capture_output=True, check=True)
    assert unformatted.stdout == b""
    subprocess.run([go, "-C", module, "vet", "."], env=environment, check=True)  # minutes where nothing is compiled yet
    code, said, complained = run(place, go, "-C", module, "test", "-v", ".")
    assert (code, "--- PASS: TestAContainerGetsWhatItAsksFor" in said) == (0, True), said + complained
