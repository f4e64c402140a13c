"""The kernel's device events, through the native module."""

import errno
import os
import select
import socket
from pathlib import Path

import pytest

from devherd._native import UeventSocket

ASK_FOR_EVENT = Path("/sys/devices/virtual/mem/null/uevent")
ASKED_EVENT = "change@/devices/virtual/mem/null"


@pytest.fixture
def events():
    """A socket that hears all events from now on."""
    opened = UeventSocket()
    yield opened
    opened.close()


def provoke():
    """Has the kernel send an event; False where it refuses: no root, or sysfs mounted read-only."""
    refusal = refusal_of(lambda: ASK_FOR_EVENT.write_text("change"))
    assert refusal in {None, errno.EROFS, errno.EACCES, errno.EPERM}
    return refusal is None


def refusal_of(request):
    """The errno with which the kernel refuses a request, None where it grants it."""
    try:
        request()
    except OSError as error:
        return error.errno
    return None


def test_an_event_of_the_kernel_is_told(events):
    """As action and path of the device, below /sys."""
    provoked = provoke()
    assert bool(select.select([events], [], [], 0)[0]) >= provoked
    assert (ASKED_EVENT in events.drain()) == provoked


def test_an_event_sent_by_a_process_is_not_told(events):
    """Only the kernel's word counts."""
    port = netlink_port(events.fileno())
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as forger:
        refusal = refusal_of(lambda: forger.sendto(b"remove@/devices/forged\0", (port, 0)))
    assert refusal in {None, errno.EPERM}
    assert not [event for event in events.drain() if "forged" in event]


def netlink_port(descriptor):
    """The port that the kernel gave a netlink socket."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return same.getsockname()[0]


def test_a_closed_socket_refuses_everything(events):
    """Closing twice is fine."""
    events.close()
    events.close()
    with pytest.raises((OSError, ValueError)):
        events.drain()
