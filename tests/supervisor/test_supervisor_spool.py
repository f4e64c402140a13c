"""A resource file that appears is a child to fork, a file that goes is a child to stop."""

import shutil

from instance import until

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
    pid = instance.up().running(FIRST).pid
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
    """A temporary file of a writer gets no child."""
    instance.up()
    for name in (".example.com_second.pb.123", "notes.txt"):
        instance.settings.resources_directory.joinpath(name).touch()
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
