"""What is told of devices: what differs from what was told, once, in messages of bounded length."""

from devherd.kubernetes.condition import condition
from devherd.kubernetes.objects import LONGEST_MESSAGE, changes, message_of, reasons_of, ticket_of
from devherd.proto import health_pb2
from devherd.proto.spool_pb2 import Device, Offer


def gpus(*ill: int, of: int = 3, reason: str = "xid") -> Offer:
    devices = [Device(id=f"GPU-{n}", vendor="nvidia", reasons=[reason] if n in ill else []) for n in range(of)]
    return Offer(name="nvidia.com/gpu", devices=devices)


XID = health_pb2.Verdict(
    vendor="nvidia", device="GPU-1", held=[health_pb2.Held(reason="xid", detail="79 has fallen off the bus")]
)


def told(before: Offer, now: Offer, *verdicts) -> list[str]:
    found = changes(reasons_of([before]), [now], verdicts)
    return [message_of(change, change.devices) for change in found]


def test_devices_that_fail_and_recover_are_told_together_by_resource():
    """With the evidence; a thousand at once are one Event."""
    assert told(gpus(), gpus(1, 2), XID) == [
        "nvidia.com/gpu: Unhealthy: GPU-1 (xid: 79 has fallen off the bus), GPU-2 (xid)"
    ]
    assert told(gpus(1), gpus(2)) == [
        "nvidia.com/gpu: Unhealthy: GPU-2 (xid)",
        "nvidia.com/gpu: Healthy again: GPU-1",
    ]


def test_what_was_told_is_not_told_again_unless_its_reasons_change():
    """Nor is a device told of that is not listed any more."""
    assert told(gpus(1), gpus(1)) == []
    assert told(gpus(1), gpus(1, reason="off-bus")) == ["nvidia.com/gpu: Unhealthy: GPU-1 (off-bus)"]
    assert told(gpus(2), gpus(of=1)) == []


DO, ENDS = "reset the GPU", "by a reset of the GPU"
FACTS = {"model": "NVIDIA H100", "pci_address": "0000:17:00.0", "slot": "3", "serial": "1650", "minor": "1"}


def test_the_event_of_one_device_reads_as_a_ticket():
    """The driver's words, where it is, who has it, what takes it back; of several there is no room for that."""
    held = health_pb2.Held(reason="xid", detail="GPU has fallen off the bus", do=DO, ends=ENDS)
    verdict = health_pb2.Verdict(vendor="nvidia", device="GPU-1", held=[held])
    [one], [several] = changes({}, [gpus(1)], [verdict]), changes({}, [gpus(1, 2)], [verdict])
    [well] = changes(reasons_of([gpus(1)]), [gpus()], ())

    assert message_of(one, one.devices, ticket_of(one, FACTS, ["work/train-0"])) == (
        "nvidia.com/gpu: Unhealthy: GPU-1 (xid: GPU has fallen off the bus); do: reset the GPU"
        "; NVIDIA H100, PCI address 0000:17:00.0, slot 3, serial 1650; held by work/train-0"
        "; ends by a reset of the GPU"
    )
    assert ticket_of(one, {}, []) == f"; ends {ENDS}"
    assert (ticket_of(several, FACTS, ["a/b"]), ticket_of(well, FACTS, ["a/b"])) == ("", "")


def test_the_event_of_several_devices_says_what_to_do_once():
    """For all, where that is the same; else for the first, and where the rest is said."""

    def verdict(device: str, do: str) -> health_pb2.Verdict:
        return health_pb2.Verdict(vendor="nvidia", device=device, held=[health_pb2.Held(reason="xid", do=do)])

    [alike] = changes({}, [gpus(1, 2)], [verdict("GPU-1", "start it"), verdict("GPU-2", "start it")])
    [unlike] = changes({}, [gpus(1, 2)], [verdict("GPU-1", "reset 1"), verdict("GPU-2", "reset 2")])

    beginning = "nvidia.com/gpu: Unhealthy: GPU-1 (xid), GPU-2 (xid)"
    assert message_of(alike, alike.devices) == f"{beginning}; do: start it"
    assert message_of(unlike, unlike.devices) == f"{beginning}; do for GPU-1: reset 1; for the others: devherd explain"


def test_a_message_has_the_length_that_the_api_server_takes():
    """It refuses longer ones."""
    [message] = told(gpus(of=1000), gpus(*range(1000), of=1000))

    assert len(message) == LONGEST_MESSAGE
    assert message.startswith("nvidia.com/gpu: Unhealthy: GPU-0 (xid), GPU-1 (xid)")


def test_the_ids_of_a_shared_device_are_known_by_which_the_kubelet_gives_it():
    """Pods hold replicas."""
    shared = Offer(name="a/b", devices=[Device(id="d", replicas=2, reasons=["xid"])])

    [change] = changes({}, [shared], ())

    assert change.ids == {"d": {"d", "d::0", "d::1"}}


def test_the_condition_is_a_problem_while_a_device_is_unhealthy():
    """As node-problem-detector's conditions are."""
    ill, well = condition(reasons_of([gpus(1)])), condition({})

    assert (ill["type"], ill["status"], ill["message"]) == ("DevicesUnhealthy", "True", "nvidia.com/gpu GPU-1")
    assert (well["status"], well["reason"]) == ("False", "DevicesHealthy")


def test_a_device_that_is_only_cordoned_is_no_problem_of_the_node():
    """Somebody has asked for that; one that is cordoned and ill is a problem."""
    cordoned = Offer(name="a/b", devices=[Device(id="d", reasons=["cordoned"])])
    both = Offer(name="a/b", devices=[Device(id="d", reasons=["cordoned", "xid"])])

    assert condition(reasons_of([cordoned]))["status"] == "False"
    assert condition(reasons_of([both]))["message"] == "a/b d"
