"""A resource file that appears is a child to fork, a file that goes is a child to stop."""

import shutil
import signal
import sys

from instance import open_paths, until

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

FIRST, SECOND = "resource:example.com_first", "resource:example.com_second"


def test_the_first_scans_resources_have_children_from_the_start(instance):
    """What the first scan wrote is served without waiting for the scanner."""
    assert set(instance.up().children()) == {"scanner", "exporter", FIRST}


def test_a_resource_file_that_appears_gets_a_child(instance):
    """Hot plug of a new type: one more child, the others are left alone."""
    before = instance.up().children()
    instance.appear("example.com_second")
    instance.running(SECOND)
    assert {name: child for name, child in instance.children().items() if name != SECOND} == before


def test_a_resource_file_that_vanishes_ends_its_child(instance):
    """A type that is gone for good: its child ends cleanly and supervisorctl does not know it any more."""
    instance.up().vanish("example.com_first")
    until(lambda: FIRST not in instance.children(), "the end of the child")
    assert f"{FIRST} says goodbye" in instance.stderr()
    assert "no such process" in instance.ctl("status", FIRST)
    assert not instance.settings.logs_directory.joinpath(f"{FIRST}.log").exists()


def test_a_resource_file_that_comes_back_gets_a_fresh_child(instance):
    """Also when it comes back while the old child is still ending."""
    instance.order(f"deaf.{FIRST}")
    pid = instance.up(stop=2.0).running(FIRST).pid
    instance.vanish("example.com_first")
    until(lambda: instance.children()[FIRST].state == "STOPPING", "the child's end")
    instance.appear("example.com_first")
    child = instance.running(FIRST, other_than=pid)
    assert child.restarts == {}


def test_a_child_that_waits_for_its_next_start_leaves_with_its_file(instance):
    """Nothing is started again for a resource that is gone."""
    instance.order(f"fail.{FIRST}")
    instance.start()
    until(lambda: (child := instance.children().get(FIRST)) and child.restarts["exit"] > 2, "failures")
    instance.vanish("example.com_first")
    until(lambda: FIRST not in instance.children(), "the end of the child")


def test_other_files_are_no_resources(instance):
    """A temporary directory of a writer gets no child, nor does an empty one."""
    instance.up()
    spool.write(instance.settings.resources_directory / ".example.com_second.new/current.pb", spool_pb2.Resource())
    instance.settings.resources_directory.joinpath("notes.txt").touch()
    instance.settings.resources_directory.joinpath("example.com_empty").mkdir()
    instance.appear("example.com_third")
    instance.running("resource:example.com_third")
    assert set(instance.children()) == {"scanner", "exporter", FIRST, "resource:example.com_third"}


def test_a_spool_directory_that_is_made_again_is_watched_again(instance):
    """Files are found also after somebody removed the directory."""
    instance.up()
    shutil.rmtree(instance.settings.resources_directory)
    until(lambda: FIRST not in instance.children(), "the end of the child")
    instance.settings.resources_directory.mkdir()
    instance.appear("example.com_second")
    instance.running(SECOND)


def test_many_resources_at_once_all_get_children(instance):
    """Dense nodes have dozens of types."""
    instance.up()
    for number in range(24):
        instance.appear(f"example.com_type{number}")
    for number in range(24):
        instance.running(f"resource:example.com_type{number}")


def test_a_program_of_the_list_is_a_child_of_its_group(instance):
    """One entry more in the list of programs is one child more, under `group:name` for supervisorctl."""
    instance.order("sources")
    instance.up()
    for name in ("source:nvml", "source:kernel-log"):
        instance.running(name)
    assert {line.split()[0] for line in instance.ctl("status").splitlines()} == {
        *("exporter", "resource:example.com_first", "scanner", "source:kernel-log", "source:nvml")
    }
    assert "source:nvml: stopped" in instance.ctl("stop", "source:*")


FEW_INSTANCES = """
import pathlib, sys
from devherd.supervisor import options
options._INSTANCES = pathlib.Path({limit!r})
from devherd.cli import main
sys.exit(main())
"""


async def test_more_resources_than_inotify_instances_leave_half_of_them_to_others_and_lose_nothing(directory):
    """128 are a user's by default, and the kubelet's too: 200 resources took all of them."""
    limit = directory / "max_user_instances"
    limit.write_text("16\n")
    names = [f"example.com/type-{number}" for number in range(10)]

    def config(count):
        return {"simulated": [{"name": name, "count": count} for name in names]}

    testbed = Testbed(directory, NodeSpec(), config(1))
    testbed.command = sys.executable, "-c", FEW_INSTANCES.format(limit=str(limit))
    async with testbed:
        for name in names:
            await testbed.kubelet.until_allocatable(name, 1)
        await testbed.until(testbed.runs, "all run")
        watching = [child for child in testbed.children().values() if _has_inotify(child.pid)]
        assert 3 <= len(watching) <= 8
        cure = "raise fs.inotify.max_user_instances"
        testbed.configure(config(2))
        testbed.herd.send_signal(signal.SIGHUP)
        for name in names:
            await testbed.kubelet.until_allocatable(name, 2)
        await testbed.until(lambda: cure in testbed.log, "it is said")
        assert testbed.log.count(cure) == 1


def _has_inotify(pid):
    return "anon_inode:inotify" in open_paths(pid).values()
