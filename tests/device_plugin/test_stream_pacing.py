"""When a list is sent on a stream, against a stream of changes in simulated time."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from devherd.device_plugin.service import REST_SECONDS, Pacing
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1

HEALTHY, UNHEALTHY = (
    v1beta1.ListAndWatchResponse(devices=[v1beta1.Device(ID="0", health=health)]) for health in ("Healthy", "Unhealthy")
)
LISTS = [HEALTHY, UNHEALTHY, v1beta1.ListAndWatchResponse()]


def play(changes):
    """What a stream sends for lists that come at given times: (time, list) in order, with the loop of `Streams`."""
    pacing, sent, now, latest = Pacing(), [], changes[0][0], changes[0][1]
    pending = changes[1:]
    while True:
        due = pacing.seconds_until_due(latest, now)
        if due == 0:
            pacing.sent(latest, now)
            sent.append((now, latest))
        elif pending and (due is None or pending[0][0] <= now + due):
            now, latest = pending.pop(0)
        elif due is not None:
            now += due
        else:
            return sent


@given(st.lists(st.tuples(st.floats(0, 0.4), st.sampled_from(LISTS)), min_size=1))
def test_a_stream_sends_the_first_list_at_once_never_an_identical_one_and_always_the_last(changes):
    """Whatever changes when: complete at once, rested in between, true in the end."""
    times, now = [], 0.0
    for pause, devices in changes:
        now += pause
        times.append((now, devices))
    sent = play(times)
    assert sent[0] == times[0]
    assert sent[-1][1] == times[-1][1]
    for (earlier, before), (later, after) in pairwise(sent):
        assert before != after
        has_failed = before == HEALTHY
        assert later - earlier >= REST_SECONDS * 0.999 or has_failed
    for at, devices in sent:
        last_change = max(when for when, what in times if what == devices and when <= at)
        assert at - last_change <= REST_SECONDS * 1.001


def test_a_change_after_a_rest_is_sent_at_once():
    """A device that fails on a quiet node is reported without delay."""
    assert play([(0.0, HEALTHY), (5.0, UNHEALTHY)]) == [(0.0, HEALTHY), (5.0, UNHEALTHY)]


def test_a_device_that_fails_is_reported_at_once_also_right_after_another_list():
    """A pod that is placed meanwhile must not get it. That it is well again may wait."""
    assert play([(0.0, HEALTHY), (0.1, UNHEALTHY), (0.2, HEALTHY)]) == [
        (0.0, HEALTHY),
        (0.1, UNHEALTHY),
        (0.1 + REST_SECONDS, HEALTHY),
    ]


def test_a_change_within_the_rest_waits_for_its_end():
    """A node on which much happens costs the kubelet four checkpoints a second at most."""
    assert play([(0.0, UNHEALTHY), (0.1, HEALTHY)]) == [(0.0, UNHEALTHY), (REST_SECONDS, HEALTHY)]


def test_a_recovery_that_is_over_within_the_rest_is_not_sent():
    """The last report is still true."""
    assert play([(0.0, UNHEALTHY), (0.1, HEALTHY), (0.2, UNHEALTHY)]) == [(0.0, UNHEALTHY)]
