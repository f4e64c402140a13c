"""`devherd sim kubelet exec` and `devherd_kubelet.run`: this kubelet for a program that knows /var/lib/kubelet only."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sim_kubelet import COMMAND

PLUGINS = "/var/lib/kubelet/device-plugins"
WITHOUT_ROOT = ("setpriv", "--bounding-set=-sys_admin")
"""Runs a program as an ordinary user is run: it may not mount."""


def executed(directory, *program, before=()):
    """The program's output."""
    command = [*before, *COMMAND, "exec", "--kubelet-dir", str(directory), "--", *map(str, program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("before", [(), WITHOUT_ROOT], ids=["as root", "as an ordinary user"])
def test_a_program_finds_the_kubelet_at_its_usual_path(devherd_kubelet, before):
    """What it writes there is in the kubelet's directory; all else of the host is where it was."""
    if os.geteuid() != 0 and before:
        pytest.skip("runs as an ordinary user anyway")
    for said in ("one", "two"):  # the second time there is nothing left of the first
        assert executed(devherd_kubelet.directory, "sh", "-c", f"echo {said} > {PLUGINS}/file", before=before) == ""
        assert (devherd_kubelet.plugin_directory / "file").read_text() == f"{said}\n"
    assert executed(devherd_kubelet.directory, "ls", PLUGINS, before=before).split() == ["file", "kubelet.sock"]
    there = {entry.name for entry in Path("/var/lib").iterdir()} - {"kubelet"}
    assert set(executed(devherd_kubelet.directory, "ls", "/var/lib", before=before).split()) - {"kubelet"} == there


def test_a_programs_place_and_exit_code_are_its_own(devherd_kubelet, tmp_path):
    """And its options are not devherd's."""
    command = [*COMMAND, "exec", "--kubelet-dir", str(devherd_kubelet.directory), "--", "sh", "-c"]
    done = subprocess.run(
        [*command, "pwd; exit 7", "--output"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, f"{tmp_path}\n")


def test_a_program_ignores_no_signals(devherd_kubelet):
    """Python does, and what it starts would, too: `| head` ended no plugin."""
    ignored = executed(devherd_kubelet.directory, "grep", "SigIgn", "/proc/self/status").split()[1]
    assert int(ignored, 16) & 1 << (signal.SIGPIPE - 1) == 0


def test_a_program_waits_for_the_kubelet(kubelet_dir):
    """In a script the kubelet was started a moment ago; with `--timeout 0` the program meets none."""
    command = [*COMMAND, "exec", "--timeout", "200ms", "--kubelet-dir", str(kubelet_dir), "--", "ls", PLUGINS]
    late = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (late.returncode, "no kubelet takes registrations after 0.2 s" in late.stderr) == (4, True)
    command[command.index("200ms")] = "0"
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
    command[command.index("0")] = "30s"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        kubelet = subprocess.Popen([*COMMAND, "--kubelet-dir", kubelet_dir], stdout=subprocess.DEVNULL)
        try:
            assert waiting.communicate(timeout=60)[0] == "kubelet.sock\n"
        finally:
            kubelet.terminate()
            kubelet.wait()


def test_a_program_that_is_none_is_refused(devherd_kubelet):
    """In one line."""
    for program, said in (((), "no program given"), (("./no-such-plugin",), "cannot run ./no-such-plugin")):
        command = [*COMMAND, "exec", "--kubelet-dir", str(devherd_kubelet.directory), "--", *program]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr.partition(" — ")[0]) == (2, f"devherd: {said}")


def test_what_forbids_the_namespace_is_said_with_a_cure(devherd_kubelet):
    """A container's seccomp profile, or a setting of the host."""
    forbid = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
    ]
    command = [*forbid, "sh", *WITHOUT_ROOT, *COMMAND, "exec", "--kubelet-dir", str(devherd_kubelet.directory), "true"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1, refused
    assert refused.stderr.startswith(
        f"devherd: cannot give a program {devherd_kubelet.directory} as /var/lib/kubelet — unshare: "
    )
    assert f"-v {devherd_kubelet.directory}:/var/lib/kubelet" in refused.stderr


def test_a_plugin_that_the_fixture_runs_is_met_by_the_kubelet(devherd_kubelet, tmp_path):
    """It is the plugin of the docs, whose argument is the usual path."""
    page = (Path(__file__).parents[2] / "docs/test-your-plugin.md").read_text(encoding="utf-8")
    (tmp_path / "plugin.py").write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    plugin = devherd_kubelet.run([sys.executable, tmp_path / "plugin.py", PLUGINS])
    devherd_kubelet.wait("example.com/gpu", allocatable=2, timeout=30)
    plugin.kill()
    devherd_kubelet.wait("example.com/gpu", gone=True, timeout=30)


RUNS = """
def test_it(devherd_kubelet):
    devherd_kubelet.run(["sh", "-c", "sleep 1000 & echo $$ $!; wait"], stdout=open({pids!r}, "w"))
    print(open("/proc/self/stat").read().split()[0], devherd_kubelet.directory, file=open({ours!r}, "w"), flush=True)
    {then}
"""


@pytest.mark.parametrize("then", ["assert False", "import time; time.sleep(1000)"], ids=["failed", "killed"])
def test_nothing_outlives_the_test(tmp_path, then):
    """Neither the kubelet nor the plugin, whether the test fails or pytest itself gets SIGKILL."""
    pids, ours = tmp_path / "pids", tmp_path / "ours"
    wait = f"import time\n    while len(open({str(pids)!r}).read().split()) < 2: time.sleep(0.01)\n    {then}"
    (tmp_path / "test_it.py").write_text(RUNS.format(pids=str(pids), ours=str(ours), then=wait))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(tmp_path / "test_it.py"),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as pytest_process:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2 and ours.exists() and ours.read_text())
        shell, _child = pids.read_text().split()
        directory = ours.read_text().split()[1]
        if "assert" not in then:
            pytest_process.send_signal(signal.SIGKILL)
        pytest_process.wait(60)
    until(lambda: not is_alive(shell) and not [line for line in command_lines() if directory in line])
    if "assert" in then:
        until(lambda: not is_alive(_child))
        assert not Path(directory).exists()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(_child), signal.SIGKILL)  # of a plugin's children nobody knows then


def is_alive(pid):
    """True for a process that is no zombie."""
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def command_lines():
    """Of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def until(condition):
    """Look again and again, for half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
