"""`devherd ctl`: the package's own supervisorctl, on the run directory's configuration."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import scratch
from command_line import devherd

from devherd.cli import ctl
from devherd.errors import UsageError

CONF = """
[supervisord]
nodaemon=true
logfile={directory}/log
pidfile={directory}/pid
childlogdir={directory}
[unix_http_server]
file={directory}/supervisor.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{directory}/supervisor.sock
[program:sleeper]
command=sleep 600
startsecs=0
"""


@pytest.fixture
def run_dir():
    """A run directory on which a plain supervisord runs one program: what ctl needs of an instance."""
    directory = scratch.directory()
    conf = directory / "supervisord.conf"
    conf.write_text(CONF.format(directory=directory))
    supervisord = Path(sys.executable).with_name("supervisord")
    with (directory / "out").open("w") as out:
        process = subprocess.Popen([sys.executable, supervisord, "-c", conf], stdout=out, stderr=out)
    deadline = time.monotonic() + 20
    while not (directory / "supervisor.sock").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield directory
    process.terminate()
    process.wait(timeout=30)
    shutil.rmtree(directory)


def test_arguments_are_handed_to_supervisorctl(run_dir):
    """status, a restart of one program, and options of the action itself."""
    first = devherd("ctl", "--run-dir", run_dir, "status")
    assert (first.code, first.stdout.split()[:2]) == (0, ["sleeper", "RUNNING"])

    restarted = devherd("ctl", "--run-dir", run_dir, "restart", "sleeper")
    assert restarted.stdout == "sleeper: stopped\nsleeper: started\n"

    tail = devherd("ctl", "--run-dir", run_dir, "tail", "-100", "sleeper")
    assert tail.code == 0


def test_supervisorctls_exit_code_is_kept(run_dir):
    """Scripts see what supervisorctl says of a program that is stopped."""
    devherd("ctl", "--run-dir", run_dir, "stop", "sleeper")

    assert devherd("ctl", "--run-dir", run_dir, "status", "sleeper").code == 3


def test_without_an_instance_ctl_exits_with_4(tmp_path):
    """In our words, not in supervisorctl's."""
    outcome = devherd("ctl", "--run-dir", tmp_path, "status")

    assert outcome.code == 4
    assert f"no instance runs in {tmp_path}" in outcome.error_line
    assert list(tmp_path.iterdir()) == []


def test_the_run_directory_may_be_named_behind_the_words(run_dir, tmp_path):
    """As with every other command; supervisorctl's own options stay where they are."""
    assert devherd("ctl", "restart", "sleeper", "--run-dir", run_dir).stdout == "sleeper: stopped\nsleeper: started\n"
    assert devherd("ctl", "tail", "-100", "sleeper", f"--run-dir={run_dir}").code == 0

    elsewhere = devherd("ctl", "restart", "sleeper", "--run-dir", tmp_path, environment={"DEVHERD_RUN_DIR": run_dir})
    assert elsewhere.code == 4
    assert f"no instance runs in {tmp_path}" in elsewhere.error_line

    assert "argument --run-dir: expected one argument" in devherd("ctl", "restart", "sleeper", "--run-dir").error_line


PROGRAMS = ["exporter", "resource:fpga.intel.com_af", "resource:nvidia.com_gpu", "scanner", "source:nvml"]


@pytest.mark.parametrize(
    ("words", "handed_over"),
    [
        ("restart nvidia.com/gpu", "restart resource:nvidia.com_gpu"),
        ("restart nvidia.com_gpu scanner", "restart resource:nvidia.com_gpu scanner"),
        ("tail -100 resource:nvidia.com/gpu stderr", "tail -100 resource:nvidia.com_gpu stderr"),
        ("signal HUP fpga.intel.com/af", "signal HUP resource:fpga.intel.com_af"),
        ("stop resource:*", "stop resource:*"),
        ("status", "status"),
        ("stop all", "stop all"),
        ("maintail -f", "maintail -f"),
    ],
)
def test_a_resource_name_stands_for_its_program(words, handed_over):
    """Nobody has to know how supervisord spells it; everything else is supervisorctl's."""
    assert " ".join(ctl.named(words.split(), PROGRAMS)) == handed_over


def test_a_program_that_does_not_exist_is_an_error_with_the_nearest_one():
    """Of `no such process`, which supervisorctl says twice."""
    with pytest.raises(UsageError, match=r"no program is called `nvidia\.com/gpus`") as refused:
        ctl.named(["restart", "nvidia.com/gpus"], PROGRAMS)
    assert refused.value.cure == "did you mean `resource:nvidia.com_gpu`?"


def test_fg_says_what_to_do_instead():
    """Supervisorctl would end in an error of its own."""
    outcome = devherd("ctl", "fg", "scanner")

    assert outcome.code == 2
    assert outcome.error_line.endswith("devherd ctl tail -f scanner")
