"""Slots for heartbeats: one for each child, however many there are."""

import os
import signal
import time
import tracemalloc
from pathlib import Path

from instance import until

from devherd.process import Heartbeats, heartbeats_of

FIRST = "resource:example.com_first"


def test_more_children_than_a_page_has_slots_all_have_one():
    """5 000 resources on one node: each beat is seen on its own, and what is not used takes no memory."""
    tracemalloc.start()
    heartbeats = Heartbeats()
    made = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    slots = [heartbeats.claim() for _ in range(5000)]

    heartbeats.beat(slots[4999])

    assert len(set(slots)) == 5000
    assert [slot for slot in slots if heartbeats.last_beat(slot)] == [slots[4999]]
    assert made < 10_000


def test_a_slot_given_back_is_given_out_again_without_its_last_beat():
    """A new child is not taken for alive by its predecessor's heart."""
    heartbeats = Heartbeats(2)
    slot = heartbeats.claim()
    heartbeats.beat(slot)
    heartbeats.release(slot)

    assert (heartbeats.free, heartbeats.claim(), heartbeats.last_beat(slot)) == (2, slot, 0.0)
    assert heartbeats.free == 1


def test_a_process_that_rests_is_not_silent_until_its_rest_is_over():
    """A resource's process without work beats each five seconds; the limit of ten counts from then on."""
    heartbeats = Heartbeats(2)
    slot = heartbeats.claim()
    heartbeats.beat(slot, rest_seconds=5)
    assert heartbeats.last_beat(slot) <= time.monotonic()
    assert heartbeats.silence_seconds(slot) < 0

    heartbeats.beat(slot)
    assert heartbeats.silence_seconds(slot) >= 0
    heartbeats.beat(slot, rest_seconds=5)
    heartbeats.release(slot)
    assert heartbeats.rest_seconds(heartbeats.claim()) == 0


def test_a_program_outside_the_instance_reads_the_heartbeats_by_the_supervisors_descriptor():
    """`devherd status` has no other way to know that a supervisor hangs; a descriptor of something else is refused."""
    heartbeats = Heartbeats(2)
    slot = heartbeats.claim()
    heartbeats.beat(slot)

    seen = heartbeats_of(os.getpid(), heartbeats.descriptor)
    assert seen is not None
    assert (seen.supervisor, seen.last_beat(slot)) == (heartbeats.supervisor, heartbeats.last_beat(slot))

    with Path(os.devnull).open() as other:
        assert heartbeats_of(os.getpid(), other.fileno()) is None
    assert heartbeats_of(2**22 + 1, 0) is None


def test_resources_beyond_the_most_children_cost_nobody_else(instance):
    """The surplus is named once and waits for room; before, the supervisor ended with all of its children."""
    instance.order("four-slots")  # two are the scanner's and the exporter's
    instance.up()
    instance.appear("example.com_second")
    instance.running("resource:example.com_second")
    for name in ("third", "fourth"):
        instance.appear(f"example.com_{name}")
        until(lambda: "at most 4 children: example.com_third and others have none" in instance.stderr(), "the line")
    assert not {"resource:example.com_third", "resource:example.com_fourth"} & instance.children().keys()

    instance.vanish("example.com_first")
    instance.running("resource:example.com_fourth")
    instance.vanish("example.com_second")
    instance.running("resource:example.com_third")
    assert instance.stderr().count("at most 4 children") == 1


def test_a_hang_is_found_in_time_as_the_supervisor_comes_to_rest(instance):
    """Its first longer pause was taken for one in which nobody ran, and gave all children a new time limit."""
    instance.up(silence=6.0, lively=2.0)
    instance.process.send_signal(signal.SIGUSR2)  # something happens for the last time
    instance.order("mute.exporter")
    muted = time.monotonic()
    until(lambda: "exporter: no heartbeat for 6.0 s" in instance.stderr(), "the replacement")
    assert time.monotonic() - muted < 10  # twelve or more with the new time limit
