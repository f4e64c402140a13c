"""Whatever happens to a child, another takes its place."""

import os
import signal
import subprocess
import time

import pytest
from instance import cpu_ticks, is_alive, until

from devherd.process import MORE_PROCESS_IDS

RESOURCE = "resource:example.com_first"


@pytest.mark.parametrize("name", ["scanner", "exporter", RESOURCE])
def test_a_killed_child_is_replaced_at_once(instance, name):
    """`kill -9` of any child: a new process runs under the same name and the cause is counted."""
    pid = instance.up().running(name).pid
    os.kill(pid, signal.SIGKILL)
    child = instance.running(name, other_than=pid)
    assert child.restarts == {"signal": 1}
    assert child.last_exit == "terminated by SIGKILL"


@pytest.mark.parametrize("name", ["scanner", RESOURCE])
def test_a_stopped_child_is_replaced(instance, name):
    """`kill -STOP`: the heartbeat ends, the child is killed and started again."""
    pid = instance.up(silence=1.0, tick=0.1).running(name).pid
    os.kill(pid, signal.SIGSTOP)
    child = instance.running(name, other_than=pid)
    assert child.restarts == {"heartbeat": 1}
    assert child.last_exit == "no heartbeat, killed"


def test_a_child_that_never_beats_is_replaced(instance):
    """A child that hangs before its first heartbeat stays STARTING and is not waited for for ever."""
    order = instance.order(f"mute.{RESOURCE}")
    instance.start(silence=1.0, tick=0.1)
    until(lambda: (child := instance.children().get(RESOURCE)) and child.restarts["heartbeat"] > 0, "a replacement")
    assert instance.children()[RESOURCE].state != "RUNNING"
    order.unlink()
    instance.running(RESOURCE)


def test_a_child_that_keeps_failing_is_tried_ever_more_slowly_but_always(instance):
    """Back-off is BACKOFF, never FATAL; once the cause is gone the child comes up by itself."""
    order = instance.order(f"fail.{RESOURCE}")
    instance.start()
    until(lambda: (child := instance.children().get(RESOURCE)) and child.restarts["exit"] >= 5, "five restarts")
    assert instance.children()[RESOURCE].last_exit == "exit status 1"
    assert instance.children()["scanner"].restarts == {}
    until(lambda: "BACKOFF" in (status := instance.ctl("status", RESOURCE)) and "in a row" in status, "BACKOFF")
    order.unlink()
    instance.running(RESOURCE)


def test_a_child_that_cannot_be_forked_is_forked_later(instance):
    """With the process table full nobody gives up, and nobody spins."""
    order = instance.order("no-forks")
    instance.start()
    until(lambda: (child := instance.children().get(RESOURCE)) and child.state == "BACKOFF", "BACKOFF")
    assert "Too many processes" in instance.children()[RESOURCE].last_exit
    ticks = cpu_ticks(instance.process.pid)
    time.sleep(1)
    assert cpu_ticks(instance.process.pid) - ticks < 50
    order.unlink()
    instance.running(RESOURCE)


def test_a_log_directory_that_goes_is_survived(instance):
    """A child that cannot have its log file is started without: its lines are on stderr."""
    pid = instance.up().running(RESOURCE).pid
    logs = instance.settings.logs_directory
    logs.rename(logs.with_name("old"))
    os.kill(pid, signal.SIGKILL)
    instance.running(RESOURCE, other_than=pid)
    until(lambda: "logging to stderr only" in instance.stderr(), "the warning")
    until(lambda: instance.stderr().count(f"{RESOURCE} says hello") == 2, "the greeting of the second")


def test_a_crash_is_logged_with_its_traceback_and_healed(instance):
    """An exception in a child's main function ends that process alone, with exit status 70."""
    pid = instance.up().running(RESOURCE).pid
    order = instance.order(f"crash.{RESOURCE}")
    until(lambda: "RuntimeError: crashed as ordered" in instance.stderr(), "the traceback")
    order.unlink()
    assert instance.running(RESOURCE, other_than=pid).last_exit == "exit status 70"


def test_a_crash_of_grpc_without_threads_is_named(instance):
    """Defect: a child that died for lack of process ids was "terminated by SIGSEGV", and nothing more."""
    pid = instance.up().running(RESOURCE).pid
    order = instance.order(f"threadless.{RESOURCE}")
    until(lambda: "pthread_create failed" in instance.stderr(), "its last words")
    order.unlink()
    cause = instance.running(RESOURCE, other_than=pid).last_exit
    assert cause.startswith("terminated by SIGSEGV")
    assert cause.endswith(f": no thread could be started; {MORE_PROCESS_IDS}")


def test_a_herd_that_was_frozen_as_a_whole_is_not_blamed(instance):
    """After a freeze of everybody (a paused container, a suspended host) no child is killed for its silence."""
    instance.up(silence=3.0, tick=0.1)
    pids = [child.pid for child in instance.children().values()]
    everybody = [*pids, instance.process.pid]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(instance.process.pid, signal.SIGCONT)  # the worst order: the supervisor looks first
    time.sleep(0.5)  # some ticks
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    assert [child.pid for child in instance.children().values()] == pids


def test_children_end_when_the_supervisor_is_killed_and_the_next_start_is_clean(instance):
    """`kill -9` of the supervisor takes the herd with it; what it left behind does not disturb the next."""
    instance.up()
    pids = [child.pid for child in instance.children().values()]
    instance.process.kill()
    instance.process.wait()
    until(lambda: not any(map(is_alive, pids)), "the end of the children")
    assert instance.settings.control_socket.exists()
    instance.up()
    assert all(child.pid not in pids for child in instance.children().values())
    assert "RUNNING" in instance.ctl("status", "scanner")


def test_orphans_are_reaped(instance):
    """As process 1 of a container the supervisor inherits orphans; none stays a zombie."""
    instance.order("subreaper")
    instance.order(f"orphan.{RESOURCE}")
    instance.up()
    until(lambda: "orphan " in instance.stderr(), "an orphan")
    parent = str(instance.process.pid)

    def zombies() -> str:
        return subprocess.run(
            ["ps", "--ppid", parent, "-o", "stat="], capture_output=True, text=True, check=True
        ).stdout

    until(lambda: "Z" not in zombies(), "the orphan's end")
    orphan = int(instance.stderr().split("orphan ")[1].split()[0])
    until(lambda: not is_alive(orphan), "the orphan's end")
    assert len(zombies().split()) == 3
