"""What wakes the scanner: the events that count, those that do not, and events that were lost."""

import os
from pathlib import Path

import pytest
from not_tested import not_tested

from devherd._native import DirectoryWatch, KernelLog
from devherd.scanner.host_events import HostEvents, is_relevant
from devherd_sim.node.kernel_events import KernelLog as SimulatedKernelLog


class FakeUevents:
    """A source that is readable at once and answers what it is given."""

    def __init__(self, events: list[dict[str, str]], *, lost: bool = False) -> None:
        self._answer = events, lost
        self._reader, writer = os.pipe()
        os.write(writer, b"x")
        os.close(writer)

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> tuple[list[dict[str, str]], bool]:
        return self._answer

    def close(self) -> None:
        os.close(self._reader)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/devices/pci0000:80/0000:80:02.0/0000:81:00.0", True),  # a function is bound, or recovers from an error
        ("/devices/pci0000:80/0000:80:02.0/0000:81:00.0/drm/card0", True),
        ("/devices/pci0000:80/0000:80:02.0/0000:81:00.0/net/eth0", True),  # an RDMA card's
        ("/devices/virtual/kfd/kfd", True),
        ("/devices/virtual/mem/null", True),
        ("/bus/pci/drivers/amdgpu", True),  # driver_register() of the kernel, also where no device is bound
        ("/module/amdgpu", True),  # mod_sysfs_setup(): what a scan of AMD GPUs looks for
        ("/class/kfd", True),
        ("/devices/virtual/net/veth1", False),  # each container makes some
        ("/devices/virtual/net/veth1/queues/rx-0", False),
        ("/devices/virtual/bdi/0:55", False),  # each mount makes one
        ("/kernel/slab/:a-0000256/cgroup/dentry(12:x)", False),
    ],
)
def test_events_of_containers_and_mounts_wake_nobody_and_those_of_devices_and_drivers_do(path, counts):
    """A busy node has hundreds of the former a second; a driver or module comes seldom, and then counts."""
    event = {"ACTION": "add", "DEVPATH": path}
    with HostEvents(FakeUevents([event])) as events:
        assert bool(events.wait(5)) == counts
    assert is_relevant(event) == counts


def test_one_event_that_counts_among_others_is_enough():
    """They come mixed."""
    noise = {"ACTION": "add", "DEVPATH": "/devices/virtual/net/veth1"}
    with HostEvents(FakeUevents([noise, {"ACTION": "bind", "DEVPATH": "/devices/gpu"}, noise])) as events:
        assert events.wait(5)


def test_what_happened_names_the_places_and_says_whether_nodes_came_or_went():
    """So that what an event is about is looked at, and nothing else."""
    function = {"ACTION": "change", "DEVPATH": "/devices/pci0000:80/0000:80:02.0", "ERROR_EVENT": "BEGIN_RECOVERY"}
    node = {"ACTION": "remove", "DEVPATH": "/devices/pci0000:80/0000:80:02.0/drm/card0", "DEVNAME": "dri/card0"}
    for events, nodes in [([function], False), ([function, node, function], True)]:
        with HostEvents(FakeUevents(events)) as waiting:
            happened = waiting.wait(5)
        assert happened.events == events
        assert happened.places == sorted({f"/sys{event['DEVPATH']}" for event in events})
        assert (happened.nodes, happened.lost) == (nodes, False)


def test_lost_events_make_the_scanner_look():
    """The socket's buffer overflowed (ENOBUFS): what was lost may have been about a device."""
    with HostEvents(FakeUevents([], lost=True)) as events:
        assert events.wait(5)


def test_an_event_of_this_machines_kernel_wakes_the_wait():
    """On a real host the events come over netlink."""
    with HostEvents.of_host(None) as events:
        while events.wait(0):
            pass
        provoke_event()
        assert events.wait(5)
        assert events.are_reported


def test_what_nobody_reports_is_looked_for_by_rescans(tmp_path, monkeypatch):
    """By hand done to a simulated node, in a user namespace, without inotify, in a directory that cannot be watched."""
    (tmp_path / "file").touch()
    with HostEvents.of_host(tmp_path) as events:
        assert not events.are_reported
    with HostEvents.of_host(None) as events:
        events.watch([str(tmp_path / "file")])
        assert not events.are_reported
    with HostEvents() as events:
        assert not events.are_reported
    monkeypatch.setattr("devherd.scanner.host_events.is_in_user_namespace", lambda: True)
    with HostEvents.of_host(None) as events:
        assert not events.are_reported


def provoke_event() -> None:
    """Have the kernel send `change` for /dev/null's device."""
    try:
        Path("/sys/devices/virtual/mem/null/uevent").write_text("change")
    except OSError as error:
        not_tested(f"uevents of the kernel: {error}")


def test_a_directory_that_cannot_be_watched_is_logged_once_with_the_reason_and_what_covers_for_it(caplog, tmp_path):
    """The rest is watched all the same."""
    missing = str(tmp_path / "missing")
    with HostEvents(watch=DirectoryWatch()) as events:
        events.watch([missing, str(tmp_path)])
        events.watch([missing, str(tmp_path)])
        (tmp_path / "node").touch()
        assert events.wait(5)
    [record] = caplog.records
    said = f"cannot watch {missing}: No such file or directory; changes are found by the periodic rescan"
    assert record.getMessage().replace(" (os error 2)", "") == said


def test_own_files_end_the_wait_and_are_no_event_of_the_host(tmp_path):
    """Only while somebody waits for them."""
    with HostEvents() as events:
        assert events.watch_files(tmp_path)
        assert not events.watch_files(tmp_path)
        (tmp_path / "state.pb").touch()
        assert not events.wait(5)
        assert not events.watch_files(None)
        (tmp_path / "other.pb").touch()
        assert not events.wait(0)


def test_the_kernel_log_ends_the_wait_and_is_no_event_of_the_host(tmp_path):
    """Also when it was closed and opened again, for which the kernel may give the same descriptor."""
    node = SimulatedKernelLog(tmp_path)
    node.begin()
    with HostEvents() as events:
        for _ in range(2):
            log = KernelLog(str(tmp_path), [], simulated=True)
            events.also_wait_for(log)
            log.drain(10)
            assert is_quiet(events)
            node.write("something")
            assert not is_quiet(events)
            assert not events.wait(0)
            log.drain(10)
            assert is_quiet(events)
            log.close()
        events.also_wait_for(None)


def is_quiet(events: HostEvents) -> bool:
    """Whether nothing would end the wait."""
    return events._selector.select(0) == []
