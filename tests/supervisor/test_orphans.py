"""What a program of the operator leaves running when the process of its source is killed."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import scratch

from devherd.process import SOURCE_MARK
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

SOURCE = "source:external-check"
PROGRAM = """\
#!/bin/sh
(setsid sh -c '(setsid sleep {first} &); exec sleep {second}' &)
echo '{{"alive": true}}'
exec sleep 600
"""


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


def running(*durations: str) -> list[int]:
    """The processes that sleep for so long."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes().decode(errors="replace").split("\0")
            if words[0] == "sleep" and words[1] in durations:
                found.append(int(place.parent.name))
    return sorted(found)


async def test_daemons_of_a_program_end_with_the_process_of_its_source_also_by_sigkill(directory):
    """M7: they had left the program's session, and went on below process 1; the next life of the source has its own."""
    durations = f"600.{os.getpid()}1", f"600.{os.getpid()}2"
    program = directory / "check"
    program.write_text(PROGRAM.format(first=durations[0], second=durations[1]))
    program.chmod(0o755)
    config = {"simulated": [{"name": "example.com/tape", "count": 1}]}
    config["health"] = {"external": [{"name": "check", "command": [str(program)], "match": {"vendor": "simulated"}}]}
    testbed = Testbed(directory, NodeSpec(), config)
    async with testbed:
        await testbed.until(lambda: len(running(*durations)) == 2, "the daemons run")
        before = running(*durations)
        os.kill((await testbed.child(SOURCE)).pid, signal.SIGKILL)
        await testbed.until(lambda: len(set(running(*durations)) - set(before)) == 2, "the next ones run")
        await testbed.until(lambda: not set(running(*durations)) & set(before), "these are ended")
        after = running(*durations)
        await asyncio.sleep(3)  # sweeps of the supervisor
        assert running(*durations) == after
        assert len(after) == 2
    assert running(*durations) == []


ADOPTER = """
import os, subprocess, sys, time
from devherd.supervisor.orphans import Orphans
orphans = Orphans()
mark, bare = (
    int(subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"], env=env, stdout=-1).stdout)
    for env in ({**os.environ, sys.argv[1]: "4711"}, os.environ)
)
orphans.of(4712)
state = lambda pid: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
first = state(mark)
orphans.of(4711)
os.waitpid(mark, 0)
print(first != "Z", state(bare) != "Z")
os.kill(bare, 9)
"""


def test_other_orphans_are_left_alone():
    """Of another process, and those that carry no mark: somebody's shell has left them in the container."""
    script = textwrap.dedent(ADOPTER)
    done = subprocess.run([sys.executable, "-c", script, SOURCE_MARK], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]
