"""Who holds what is another's: examples, and what holds of any processes and pods."""

from hypothesis import given as any_of
from hypothesis import strategies as some

from devherd.ledger.compare import HELD_ELSEWHERE, LEFT_OVER, Given, conflicts, remembered
from devherd.ledger.processes import ContainerPlace, Opened

GPU = ("nvidia", "0000:3b:00.0", "GPU-1")
PODS = ("", "a", "b", "c")


def process(uid, pid=1):
    """A process of that pod; empty: of none."""
    return Opened((195, 0), pid, 100, "python3", ContainerPlace(uid))


def to(*uids):
    """Given to these pods, which are called like their uids."""
    return {GPU: Given(frozenset(f"default/{uid}" for uid in uids), frozenset(uids))} if uids else {}


def found(pods, given_to, former=(), ended=()):
    """The reasons by pod of the process."""
    open_by = {GPU: [process(uid, number) for number, uid in enumerate(pods, 1)]}
    seen = conflicts(open_by, given_to, {GPU: former}, lambda uid: uid in ended)
    assert {one.key for one in seen} <= {GPU}
    return sorted((one.process.place.pod_uid, one.reason) for one in seen)


def test_the_pod_that_a_device_is_given_to_may_have_it_open():
    """However many processes it has."""
    assert found(["a", "a"], to("a")) == []


def test_a_process_of_another_pod_or_of_none_holds_what_is_given_elsewhere():
    """Not that of the pod that it is given to."""
    assert found(["a", "b"], to("a")) == [("b", HELD_ELSEWHERE)]
    assert found(["", "a"], to("a")) == [("", HELD_ELSEWHERE)]


def test_a_device_that_is_given_to_nobody_may_be_open_in_one_pod_or_on_the_host():
    """Opened without being allocated is a metric, not a conflict; two pods are one."""
    assert found(["", "a"], to()) == []
    assert found(["a", "b"], to()) == [("a", HELD_ELSEWHERE), ("b", HELD_ELSEWHERE)]


def test_a_device_that_is_given_to_two_pods_and_open_in_both_is_held_elsewhere_by_both():
    """As after a checkpoint that somebody has edited."""
    assert found(["a", "b"], to("a", "b")) == [("a", HELD_ELSEWHERE), ("b", HELD_ELSEWHERE)]
    assert found(["a"], to("a", "b")) == []


def test_a_process_of_a_pod_that_held_the_device_or_that_has_ended_is_left_over():
    """Whether the device is given to another or not; the holder does nothing wrong."""
    assert found(["a"], to(), former={"a"}) == [("a", LEFT_OVER)]
    assert found(["a", "b"], to("b"), former={"a"}) == [("a", LEFT_OVER)]
    assert found(["a", "b"], to("b"), ended={"a"}) == [("a", LEFT_OVER)]
    assert found(["a"], to("a"), former={"a"}, ended={"a"}) == []


def test_a_process_that_was_killed_and_does_not_end_is_left_over_also_in_the_pod_that_holds_the_device():
    """Its container has ended, or is to; the kubelet gives the device to the next one of the pod."""
    killed = Opened((195, 0), 7, 100, "python3", ContainerPlace("a"), is_killed=True)
    seen = conflicts({GPU: [killed, process("a")]}, to("a"), {}, lambda _: False)
    assert [(one.process.pid, one.reason) for one in seen] == [(7, LEFT_OVER)]


def test_without_the_kubelets_checkpoint_a_pods_process_may_be_the_holders():
    """Names alone say nothing of cgroups; two pods are still one too many."""
    nameless = {GPU: Given(frozenset({"default/a"}))}
    assert found(["a"], nameless) == []
    assert found([""], nameless) == [("", HELD_ELSEWHERE)]
    assert found(["a", "b"], nameless) == [("a", HELD_ELSEWHERE), ("b", HELD_ELSEWHERE)]


some_pods = some.sets(some.sampled_from(PODS[1:]))


@any_of(some.lists(some.sampled_from(PODS), max_size=5), some_pods, some_pods, some_pods)
def test_whatever_is_open_only_who_has_it_open_is_named_once_and_a_lone_holder_never(pods, uids, former, ended):
    """No conflict without a process, none of the only pod, none of a holder's own beside nobody else."""
    seen = found(pods, to(*uids), former, ended)
    assert {uid for uid, _ in seen} <= set(pods)
    assert len(seen) <= len(pods)
    reason_of = dict(seen)
    assert len(reason_of) == len(set(seen)), "all processes of a pod are judged alike"
    for uid in pods:
        if uid in uids and len(uids) == 1:
            assert uid not in reason_of
        if uid and uid not in uids and uid in former | ended:
            assert reason_of[uid] == LEFT_OVER
        if uid not in uids and uid not in former | ended and uids:
            assert reason_of[uid] == HELD_ELSEWHERE


@any_of(some_pods, some_pods, some_pods, some.lists(some.sampled_from(PODS), max_size=5))
def test_a_former_holder_is_remembered_for_as_long_as_it_has_the_device_open(former, before, now, pods):
    """And not while it holds it again."""
    kept = remembered({GPU: former}, to(*before), to(*now), {GPU: [process(uid) for uid in pods]})
    assert kept.get(GPU, set()) == ((former | before) & set(pods)) - now
