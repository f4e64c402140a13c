"""What a child inherits from the supervisor, and what it does not."""

import os
import re
from pathlib import Path

from instance import open_paths

FIRST = "resource:example.com_first"


def test_a_child_has_no_descriptors_but_its_own(instance):
    """No lock, no control socket, no inotify, no pipe of another child: only stdin and its output."""
    pid = instance.up().running(FIRST).pid
    links = open_paths(pid)
    assert links[0] == "/dev/null"
    assert links[1] == links[2]
    assert re.fullmatch(r"pipe:\[\d+\]", links[1])
    assert sorted(links) == [0, 1, 2]


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
