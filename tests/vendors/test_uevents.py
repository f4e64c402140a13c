"""Device events through the native module; what a message may be is tested beside the code (rust/src/events)."""

import select
from pathlib import Path

import pytest
from not_tested import not_tested

from devherd._native import UeventSocket

ASK_FOR_EVENT = Path("/sys/devices/virtual/mem/null/uevent")


def test_an_event_of_the_kernel_arrives_with_its_variables():
    """By name, as drivers and health sources know them."""
    events = UeventSocket()
    try:
        ASK_FOR_EVENT.write_text("change")
    except OSError as error:  # no root, or sysfs mounted read-only
        not_tested(f"uevents of the kernel: {error}")
    assert select.select([events], [], [], 5)[0]
    heard, lost = events.drain()
    [event] = [event for event in heard if event["DEVPATH"] == "/devices/virtual/mem/null"]
    assert not lost
    known = {"ACTION": "change", "SUBSYSTEM": "mem", "DEVNAME": "null", "MAJOR": "1", "MINOR": "3", "SYNTH_UUID": "0"}
    assert event.items() >= known.items()
    events.close()


def test_a_closed_socket_refuses_everything():
    """Closing twice is fine."""
    events = UeventSocket()
    events.close()
    events.close()
    with pytest.raises(ValueError, match="closed"):
        events.drain()
    with pytest.raises(ValueError, match="closed"):
        events.fileno()


def test_a_simulated_node_that_is_not_there_cannot_be_listened_to(tmp_path):
    """With the kernel's own error."""
    with pytest.raises(FileNotFoundError):
        UeventSocket(str(tmp_path / "node"))
