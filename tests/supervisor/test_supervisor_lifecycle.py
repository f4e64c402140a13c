"""Start, reload and end of an instance."""

import os
import signal

import pytest
from instance import is_alive, until

FIRST = "resource:example.com_first"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_ends_everything_cleanly(instance, number):
    """Exit code 0, no process left, the control socket gone; resource children end first, the scanner last."""
    instance.up()
    pids = [child.pid for child in instance.children().values()]
    os.kill(instance.process.pid, number)
    assert instance.ended() == 0
    assert not any(map(is_alive, pids))
    assert not instance.settings.control_socket.exists()
    assert not instance.settings.children_file.exists()
    goodbyes = [line.split()[0] for line in instance.stderr().splitlines() if line.endswith("says goodbye")]
    assert goodbyes == [FIRST, "exporter", "scanner"]


def test_a_child_that_does_not_stop_is_killed(instance):
    """A deaf child delays the end by its five seconds, no more."""
    instance.order(f"deaf.{FIRST}")
    instance.up()
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    assert f"{FIRST} did not stop within 5 s: killed" in instance.stderr()


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
    instance.start()
    instance.running("scanner")
    assert FIRST not in instance.children()
    assert "the first scan takes longer than 5 s" in instance.stderr()


def test_a_bad_configuration_is_one_line_and_exit_code_2(instance):
    """Nothing has been started, no run directory has been touched."""
    instance.order("bad-config")
    assert instance.start().ended() == 2
    expected = "devherd: bad configuration in tiny.yaml — scan.peroid: unknown key — run `devherd check-config` on it\n"
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
    assert instance.stderr().startswith("devherd: cannot open the control socket — ")
    assert instance.stderr().count("\n") == 1


def test_a_first_scan_that_is_killed_before_it_told_the_settings_is_one_line(instance):
    """As the kernel does when memory runs out: a message and exit code 1, nothing is started."""
    instance.order("killed-load")
    assert instance.start().ended() == 1
    assert instance.stderr() == "devherd: the first scan was killed — by SIGKILL — start devherd again\n"
