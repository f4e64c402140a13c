"""Start, reload and end of an instance."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from instance import is_alive, until

from devherd import spool
from devherd.kubelet import endpoint
from devherd.proto import spool_pb2

FIRST = "resource:example.com_first"


def goodbyes(instance):
    """The children that have ended as they should, in their order."""
    return [line.split()[0] for line in instance.stderr().splitlines() if line.endswith("says goodbye")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_ends_everything_cleanly(instance, number):
    """Exit code 0, no process left, the control socket gone; resource children end last: the kubelet needs them."""
    instance.up()
    pids = [child.pid for child in instance.children().values()]
    os.kill(instance.process.pid, number)
    assert instance.ended() == 0
    assert not any(map(is_alive, pids))
    assert not instance.settings.control_socket.exists()
    assert not instance.settings.children_file.exists()
    assert sorted(goodbyes(instance)) == ["exporter", FIRST, "scanner"]
    assert goodbyes(instance)[-1] == FIRST


def test_what_does_not_end_keeps_the_kubelets_part_waiting_no_longer_than_a_moment(instance):
    """A scanner that is deaf is killed after some seconds; the resource has ended long before."""
    instance.order("deaf.scanner")
    instance.up(stop=3.0)
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    lines = instance.stderr().splitlines()
    killed = next(place for place, line in enumerate(lines) if "scanner did not stop within 3 s: killed" in line)
    assert lines.index(f"{FIRST} says goodbye") < killed


def test_a_child_that_does_not_stop_is_killed(instance):
    """A deaf child delays the end by its time limit, no more."""
    instance.order(f"deaf.{FIRST}")
    instance.up(stop=0.5)
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    assert f"{FIRST} did not stop within 0.5 s: killed" in instance.stderr()


@pytest.mark.parametrize("name", ["scanner", FIRST])
def test_a_child_that_cannot_be_killed_is_left_behind_and_the_others_end_cleanly(instance, name):
    """A read of a wedged device hangs in the kernel: waiting for it, the supervisor would never end."""
    instance.order(f"asleep.{name}")
    instance.up(stop=2.0, die=0.5)
    pid = instance.running(name).pid
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    assert f"{name}, process {pid}, is left behind: in uninterruptible sleep (state D)" in instance.stderr()
    assert sorted(goodbyes(instance)) == sorted({FIRST, "exporter", "scanner"} - {name})
    assert not instance.settings.control_socket.exists()


def test_hangup_reloads_the_configuration(instance):
    """Scanner and exporter are told; no process is replaced."""
    before = instance.up().children()
    os.kill(instance.process.pid, signal.SIGHUP)
    until(lambda: instance.stderr().count("reloaded") == 2, "two reloads")
    assert "reloaded" in instance.ctl("tail", "scanner")
    assert "reloaded" in instance.ctl("tail", "exporter")
    assert instance.children() == before


def test_signals_during_the_start_do_no_harm(instance):
    """SIGHUP before there is a herd is kept until there is one."""
    instance.start()
    until(instance.settings.lock_file.exists, "the lock")
    os.kill(instance.process.pid, signal.SIGHUP)
    for name in ("scanner", "exporter", FIRST):
        instance.running(name)
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0


def test_the_start_can_be_broken_off(instance):
    """SIGTERM while the first scan hangs: exit code 0 and nothing left behind."""
    instance.order("slow-scan")
    instance.start()
    until(instance.settings.supervisord_conf.exists, "the start")
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    assert not instance.children()


def test_a_first_scan_that_hangs_holds_nobody_up_for_long(instance):
    """It is broken off and left to the scanner, which is fenced against such things."""
    instance.order("slow-scan")
    instance.start(first_scan=1.0)
    instance.running("scanner")
    assert FIRST not in instance.children()
    assert "the first scan takes longer than 1 s" in instance.stderr()


def test_a_bad_configuration_is_one_line_and_exit_code_2(instance):
    """Nothing has been started, no run directory has been touched."""
    instance.order("bad-config")
    assert instance.start().ended() == 2
    expected = "devherd: bad configuration in tiny.yaml — scan.peroid: unknown key — run `devherd config check` on it\n"
    assert instance.stderr() == expected
    assert not instance.settings.lock_file.exists()


def test_a_run_directory_that_cannot_be_made_is_one_line_and_exit_code_2(make_instance, directory):
    """Here a file is in its way."""
    instance = make_instance()
    (instance.settings.run_dir / "logs").touch()
    assert instance.start().ended() == 2
    assert instance.stderr().startswith(f"devherd: cannot use the run directory {instance.settings.run_dir} — ")
    assert instance.stderr().count("\n") == 1


def test_a_run_directory_whose_socket_path_is_too_long_is_one_line_and_exit_code_2(make_instance):
    """A UNIX socket's path has 107 bytes."""
    instance = make_instance(run_dir="x" * 120)
    assert instance.start().ended() == 2
    assert instance.stderr().startswith("devherd: the run directory ")
    assert instance.stderr().count("\n") == 1


def test_a_first_scan_that_is_killed_before_it_told_the_settings_is_one_line(instance):
    """As the kernel does when memory runs out: a message and exit code 1, nothing is started."""
    instance.order("killed-load")
    assert instance.start().ended() == 1
    assert instance.stderr() == "devherd: the first scan was killed — by SIGKILL — start devherd again\n"


def test_too_long_a_run_directory_is_refused_before_anything_is_made(directory):
    """In our own words, with the length that is too much."""
    run_dir = directory / ("r" * 100)
    command = [sys.executable, "-m", "devherd", "run", "--run-dir", run_dir, "--kubelet-dir", directory / "kubelet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"devherd: the run directory {run_dir} is too long — its control socket's path would")
    assert done.stderr.endswith("bytes and the kernel takes 107 — choose a shorter --run-dir\n")
    assert not run_dir.exists()


def test_what_a_killed_instance_left_of_gone_resources_is_removed(instance):
    """Sockets, state and logs; sockets of others stay."""
    settings = instance.settings
    for made in (settings.plugin_directory, settings.state_directory, settings.logs_directory):
        made.mkdir(parents=True)
    state = spool.path_of(settings.state_directory, "example.com_gone")
    spool.write(state, spool_pb2.ResourceState(name="example.com/gone", generation=7))
    left = settings.plugin_directory / f"{endpoint.prefix('example.com/gone')}7.sock"
    others = settings.plugin_directory / f"{endpoint.prefix('example.com/other')}7.sock"
    logs = [settings.logs_directory / f"resource:example.com_gone.log{suffix}" for suffix in ("", ".1")]
    for path in (left, others):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    for path in logs:
        path.touch()

    instance.up()

    assert [path for path in (left, state, *logs) if path.exists()] == []
    assert others.exists()
    assert settings.logs_directory.joinpath("resource:example.com_first.log").exists()
