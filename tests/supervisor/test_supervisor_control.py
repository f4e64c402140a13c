"""The real supervisorctl against a running instance."""

import socket
import stat

from instance import until

FIRST = "resource:example.com_first"
ALL = ("scanner", "exporter", FIRST)


def test_status_shows_every_program(instance):
    """The whole system under the contract's names."""
    lines = instance.up().ctl("status").splitlines()
    assert sorted(line.split()[:2] for line in lines) == sorted([name, "RUNNING"] for name in ALL)


def test_the_control_socket_is_for_its_owner_alone(instance):
    """Mode 0700, in a run directory of mode 0700."""
    instance.up()
    assert stat.S_IMODE(instance.settings.control_socket.stat().st_mode) == 0o700


def test_restart_replaces_one_child_and_counts_the_operator(instance):
    """The others keep their processes."""
    before = instance.up().children()
    assert f"{FIRST}: started" in instance.ctl("restart", FIRST)
    child = instance.running(FIRST, other_than=before[FIRST].pid)
    assert child.restarts == {"operator": 1}
    assert instance.children()["scanner"] == before["scanner"]


def test_a_stopped_program_stays_stopped_until_it_is_started(instance):
    """An operator's hand is not overruled by the herd, not even by a change in the spool."""
    instance.up()
    assert f"{FIRST}: stopped" in instance.ctl("stop", FIRST)
    instance.appear("example.com_second")
    instance.running("resource:example.com_second")
    assert instance.children()[FIRST].state == "STOPPED"
    assert f"{FIRST}: started" in instance.ctl("start", FIRST)
    instance.running(FIRST)


def test_the_whole_group_can_be_stopped_and_started(instance):
    """`resource:*` means every resource type."""
    instance.up().appear("example.com_second")
    instance.running("resource:example.com_second")
    assert instance.ctl("stop", "resource:*").count("stopped") == 2
    assert {child.state for name, child in instance.children().items() if name.startswith("resource:")} == {"STOPPED"}
    assert instance.ctl("start", "resource:*").count("started") == 2
    instance.running(FIRST)


def test_a_failing_program_can_be_stopped_while_it_waits(instance):
    """`stop` in BACKOFF ends the wait."""
    instance.order(f"fail.{FIRST}")
    instance.start()
    until(lambda: (child := instance.children().get(FIRST)) and child.restarts["exit"] > 4, "failures")
    until(lambda: "BACKOFF" in instance.ctl("status", FIRST), "BACKOFF")
    assert f"{FIRST}: stopped" in instance.ctl("stop", FIRST)
    until(lambda: instance.children()[FIRST].state == "STOPPED", "STOPPED")


def test_pid_avail_signal_and_clear_work(instance):
    """The commands beside status, start and stop."""
    instance.up()
    assert instance.ctl("pid").strip() == str(instance.process.pid)
    assert instance.ctl("pid", FIRST).strip() == str(instance.children()[FIRST].pid)
    assert instance.ctl("avail").count("in use") == len(ALL)
    assert "scanner: signalled" in instance.ctl("signal", "HUP", "scanner")
    until(lambda: "reloaded" in instance.ctl("tail", "scanner"), "the signal")
    assert "scanner: cleared" in instance.ctl("clear", "scanner")
    assert instance.ctl("tail", "scanner").strip() == ""


def test_tail_shows_what_a_child_wrote_to_stderr_and_maintail_what_the_supervisor_did(instance):
    """Both channels of `tail` are the one log of the child."""
    instance.up()
    for arguments in ((FIRST,), (FIRST, "stdout"), (FIRST, "stderr")):
        assert f"{FIRST} says hello" in instance.ctl("tail", *arguments)
    assert f"{FIRST} started" in instance.ctl("maintail")


def test_reload_update_and_reread_reload_the_configuration_and_keep_the_herd(instance):
    """The package would restart everything; here they do what SIGHUP does."""
    before = instance.up().children()
    for number, (word, said) in enumerate(
        {"reload": "Restarted supervisord\n", "update": "", "reread": "No config updates to processes\n"}.items(), 1
    ):
        assert instance.ctl(word) == said
        until(lambda: instance.stderr().count("reloaded") == 2 * number, "both are told")  # noqa: B023 - called at once
    assert instance.children() == before


def test_groups_cannot_be_added_or_removed(instance):
    """Which programs there are is the spool's business; the refusal is a line, not a crash."""
    instance.up()
    assert instance.ctl("remove", "resource") == "ERROR: process/group still running: resource\n"
    assert instance.ctl("add", "resource") == "ERROR: process group already active\n"
    assert instance.ctl("add", "unknown") == "ERROR: no such process/group: unknown\n"
    assert set(instance.children()) == set(ALL)


def test_shutdown_ends_the_instance_cleanly(instance):
    """As SIGTERM does."""
    assert instance.up().ctl("shutdown") == "Shut down\n"
    assert instance.ended() == 0
    assert not instance.settings.control_socket.exists()


def test_a_run_directory_with_odd_characters_is_reachable(make_instance):
    """A per cent sign begins an expansion in supervisord's files."""
    instance = make_instance(run_dir="100% [x]").up()
    assert "RUNNING" in instance.ctl("status", "scanner")


def test_a_control_socket_that_was_removed_is_made_again(instance):
    """With its file for supervisorctl; the children are left alone."""
    before = instance.up().children()
    instance.settings.control_socket.unlink()
    instance.settings.supervisord_conf.unlink()
    until(instance.settings.control_socket.exists, "the control socket")
    assert instance.ctl("status").count("RUNNING") == len(ALL)
    assert instance.children() == before
    assert "supervisor.sock was removed and has been created again" in instance.stderr()


def test_supervisords_own_page_is_there_for_whoever_opens_it(instance):
    """It is imported then; before, no start waits for it."""
    instance.up()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(instance.settings.control_socket))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.0 200 OK")
    assert "<title>Supervisor Status</title>" in answer
