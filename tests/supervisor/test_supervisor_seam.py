"""What a child inherits from the supervisor, and what it does not."""

import os
import re
from pathlib import Path

from instance import open_paths, until
from prometheus_client.multiprocess import MultiProcessCollector

FIRST = "resource:example.com_first"


def test_a_child_has_no_descriptors_but_its_own(instance):
    """No lock, no control socket, no inotify, no pipe of another child: only stdin, its output and counter files."""
    pid = instance.up().running(FIRST).pid
    links = open_paths(pid)
    assert links[0] == "/dev/null"
    assert links[1] == links[2]
    assert re.fullmatch(r"pipe:\[\d+\]", links[1])
    counters = str(instance.settings.counters_directory)
    assert all(link.startswith(counters) for number, link in links.items() if number > 2)


def test_the_supervisor_has_one_thread(instance):
    """A fork from a process with threads is not safe."""
    instance.up()
    assert len(list(Path(f"/proc/{instance.process.pid}/task").iterdir())) == 1


def test_a_child_has_default_signal_handling_and_a_group_of_its_own(instance):
    """Nothing is blocked; Ctrl-C in the supervisor's terminal does not reach it."""
    pid = instance.up().running(FIRST).pid
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert int(status["SigBlk"], 16) == 0
    assert os.getpgid(pid) == pid
    assert Path(f"/proc/{pid}/comm").read_text() == "resource:exampl\n"


def hellos(instance):
    """What the children have counted, by the file's owner."""
    counted = {}
    for file in instance.settings.counters_directory.glob("counter_*.db"):
        for family in MultiProcessCollector.merge([str(file)]):
            counted.update({file.stem.removeprefix("counter_"): sample.value for sample in family.samples})
    return counted


def test_counters_belong_to_a_child_and_outlive_it(instance):
    """A restarted child goes on counting where its predecessor stopped; the next instance starts from nothing."""
    child = instance.up().running(FIRST)
    os.kill(child.pid, 9)
    instance.running(FIRST, other_than=child.pid)
    until(lambda: hellos(instance).get(FIRST) == 2.0, "the second hello")
    assert hellos(instance)["scanner"] == 1.0
    instance.process.kill()
    instance.process.wait()
    instance.up()
    assert hellos(instance)[FIRST] == 1.0
