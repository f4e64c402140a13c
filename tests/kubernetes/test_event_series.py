"""Events that repeat are counted in one; a lost answer makes none twice; client-go's limits hold for each object."""

import contextlib

import offered
import pytest

from devherd.api_server import Api, ApiError
from devherd.kubernetes import event_series
from devherd.kubernetes.event_series import EventSeries
from devherd.kubernetes.objects import configuration_event
from devherd.kubernetes.reporter import Reporter
from devherd.proto.spool_pb2 import Device, Offer
from devherd.settings import Settings

GPU = "nvidia.com/gpu"


@pytest.fixture
def api(objects_api):
    with contextlib.closing(Api(objects_api.access)) as api:
        yield api


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when the test says so: `clock[0]`."""
    now = [1000.0]
    monkeypatch.setattr(event_series.time, "monotonic", lambda: now[0])
    return now


class Reports:
    """Events about devices, in this process."""

    def __init__(self, directory, api, monkeypatch) -> None:
        monkeypatch.setenv("NODE_NAME", "node-1")
        self.directory = directory
        self.settings = Settings(run_dir=directory, kubelet_dir=directory / "kubelet")
        self.reporter = Reporter(self.settings, api, EventSeries(api), lambda: None)

    def offer(self, name: str, **reasons: str) -> None:
        """Devices by id, with a reason or none; looked at once."""
        devices = [Device(id=each, reasons=[why] if why else []) for each, why in reasons.items()]
        offered.put(self.directory, Offer(name=name, devices=devices))
        self.reporter.tend()


@pytest.fixture
def reports(tmp_path, api, monkeypatch):
    (tmp_path / "run/kubernetes").mkdir(parents=True)
    return Reports(tmp_path / "run", api, monkeypatch)


def told(server) -> list[tuple[str, int, int]]:
    """Message, count, and the count of the series, of each Event."""
    return [(each["message"], each["count"], each.get("series", {}).get("count", 0)) for each in server.events]


ILL, WELL = "nvidia.com/gpu: Unhealthy: a (xid)", "nvidia.com/gpu: Healthy again: a"


def test_what_repeats_is_counted_in_the_event_that_is_there(reports, objects_api):
    """As client-go's recorder has it: `kubectl describe node` shows `x3`."""
    for _ in range(3):
        reports.offer(GPU, a="xid")
        reports.offer(GPU, a="")

    assert told(objects_api) == [(ILL, 3, 3), (WELL, 3, 3)]


def test_another_reason_is_another_event(reports, objects_api):
    reports.offer(GPU, a="xid")
    reports.offer(GPU, a="off-bus")

    assert told(objects_api) == [(ILL, 1, 0), ("nvidia.com/gpu: Unhealthy: a (off-bus)", 1, 0)]


def test_what_the_limit_holds_back_is_counted_in_the_next_one(reports, objects_api, clock):
    """25 at once, one in five minutes from then on; nothing is lost of how often it happened."""
    for _ in range(50):
        reports.offer(GPU, a="xid")
        reports.offer(GPU, a="")
    assert told(objects_api) == [(ILL, 13, 13), (WELL, 12, 12)]
    clock[0] += 299.0
    reports.reporter.tend()
    assert told(objects_api) == [(ILL, 13, 13), (WELL, 12, 12)]
    clock[0] += 2.0
    reports.reporter.tend()

    assert told(objects_api) == [(ILL, 13, 13), (WELL, 50, 50)]


def test_a_resource_that_flaps_does_not_keep_another_from_being_told(reports, objects_api, clock):
    """The one that has waited longest comes first when there is room for one."""
    for _ in range(15):
        reports.offer("a.com/flaps", d="xid")
        reports.offer("a.com/flaps", d="")
    reports.offer(GPU, a="xid")
    reports.offer("a.com/flaps", d="xid")
    assert ILL not in [message for message, _, _ in told(objects_api)]
    clock[0] += 301.0
    reports.reporter.tend()

    assert told(objects_api)[-1] == (ILL, 1, 0)


def test_an_event_whose_answer_is_lost_is_there_once(reports, objects_api, clock):
    """The server has it: the same name again is refused, and that is its answer."""
    objects_api.loses_answers = True
    reports.offer(GPU, a="xid")
    assert told(objects_api) == [(ILL, 1, 0)]
    objects_api.loses_answers = False
    clock[0] += 10.0
    reports.reporter.tend()
    reports.offer(GPU, a="")
    reports.offer(GPU, a="xid")

    assert told(objects_api) == [(ILL, 2, 2), (WELL, 1, 0)]
    assert objects_api.writes.count("POST /api/v1/namespaces/default/events") == 3


def test_a_failed_call_uses_nothing_of_the_limit(reports, objects_api, clock):
    """A server that was away for long is told at once when it is back."""
    objects_api.refusal = (503, "starting")
    reports.offer(GPU, a="xid")
    for _ in range(60):
        clock[0] += 60.0
        reports.reporter.tend()
    clock[0] += 61.0
    objects_api.refusal = None
    for number in range(25):
        reports.offer(f"example.com/r{number}", d="xid")

    assert len(objects_api.events) == 25


def test_an_event_that_the_server_has_removed_is_made_again(reports, objects_api):
    """After an hour, by default."""
    reports.offer(GPU, a="xid")
    reports.offer(GPU, a="")
    objects_api.events.clear()
    reports.offer(GPU, a="xid")

    assert told(objects_api) == [(ILL, 1, 0)]


def test_after_the_lifetime_of_an_event_the_count_begins_anew(reports, objects_api, clock):
    for _ in range(2):
        reports.offer(GPU, a="xid")
        reports.offer(GPU, a="")
        clock[0] += event_series.LIFETIME_SECONDS

    assert told(objects_api) == [(ILL, 1, 0), (WELL, 1, 0)] * 2


def test_each_object_has_limits_of_its_own(api, objects_api):
    """A node whose devices flap does not silence another object."""
    events = EventSeries(api)
    sent = [events.send(configuration_event(str(number), "node-1", 0.0), number) for number in range(26)]
    other = events.send(configuration_event("x", "node-2", 0.0), "x")

    assert (sent, other) == ([True] * 25 + [False], True)


def test_the_name_of_an_event_is_of_its_object_however_long(api, objects_api):
    """253 characters at most, and legal at each end."""
    EventSeries(api).send(configuration_event("x", "n" * 235 + "." * 18, 0.0), "x")

    [event] = objects_api.events
    prefix, _, digits = event["metadata"]["name"].rpartition(".")
    assert (prefix, len(digits)) == ("n" * 235, 16)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_event_that_the_server_refuses_for_good_does_not_hold_up_the_others(reports, objects_api, caplog, status):
    """Defect: it was sent again for ever, and the changes after it were never told."""
    objects_api.refusal = (status, "note: Too long")
    reports.offer(GPU, a="xid")
    objects_api.refusal = None
    reports.offer(GPU, a="xid", b="off-bus")

    assert told(objects_api) == [("nvidia.com/gpu: Unhealthy: b (off-bus)", 1, 0)]
    assert f"the API server refuses an Event, which is left out: {ILL}: {status}: note: Too long" in caplog.text


def test_a_refused_event_is_an_error(api, objects_api):
    """The caller says so, and sends it again."""
    objects_api.refusal = (403, "events is forbidden")
    with pytest.raises(ApiError, match="403"):
        EventSeries(api).send(configuration_event("x", "node-1", 0.0), "x")
