"""ResourceSlices of a real API server while the node changes, and what scheduler and controllers make of them."""

import os
import time

import pytest
from dra_cluster import CONFIG, GPU, SLICES, one_claim, render
from private_machine import NAME
from seeds import random_of
from test_dra_objects import by_value

from devherd_sim.node import faults

CHANGES = int(os.environ.get("DEVHERD_TEST_CHANGES", "12"))
REST_SECONDS = 3.0


def test_a_sick_device_is_tainted_the_next_pod_waits_and_the_one_that_has_it_is_told(dra):
    """By the reason; once it is well the pod runs, and the claim's health says so too."""
    [device, *_] = one_claim(dra, count=8)
    dra.end("a")
    faults.inject(dra.node.node, "node", render(device))
    try:
        dra.node.eventually(lambda: set(dra.taints(device).values()) == {"NoSchedule"}, "it is tainted")
        assert all(key.startswith("devherd.io/") for key in dra.taints(device))
        dra.claim("b", GPU, 8)
        dra.with_claim("b", "b")
        dra.node.eventually(lambda: "cannot allocate all claims" in dra.why_not_scheduled("b"), "it waits")
    finally:
        faults.clear(dra.node.node, "node", render(device))
    dra.node.running("b")
    assert dra.taints(device) == {}
    faults.inject(dra.node.node, "node", render(device))
    dra.node.eventually(lambda: "Unhealthy" in dra.health("b")["claim:gpu"].values(), "its status says so")
    assert list(dra.health("b")["claim:gpu"].values()).count("Unhealthy") == 1
    faults.clear(dra.node.node, "node", render(device))
    dra.node.eventually(lambda: set(dra.health("b")["claim:gpu"].values()) == {"Healthy"}, "and that it is well")
    assert dra.pod("b")["status"]["phase"] == "Running"


def test_by_option_a_pod_with_a_sick_device_is_evicted(dra):
    [device] = one_claim(dra)
    dra.configure(health=CONFIG["health"] | {"taint": "NoExecute"})
    faults.inject(dra.node.node, "node", render(device))
    try:
        dra.node.eventually(lambda: "NoExecute" in dra.taints(device).values(), "it is tainted")
        dra.node.eventually(lambda: dra.is_gone("a"), "the pod is evicted")
    finally:
        faults.clear(dra.node.node, "node", render(device))
        dra.configure()
    dra.node.eventually(lambda: dra.taints(device) == {}, "it is well")


def test_a_cordoned_device_is_given_to_no_pod_until_it_is_uncordoned(dra):
    """The pods that have it go on."""
    [device] = one_claim(dra)
    address = dra.pci_address(device)
    dra.command("cordon", address)
    dra.node.eventually(lambda: dra.taints(device) == {"devherd.io/cordoned": "NoSchedule"}, "it is tainted")
    assert dra.pod("a")["status"]["phase"] == "Running"
    dra.command("uncordon", address)
    dra.node.eventually(lambda: dra.taints(device) == {}, "it is not tainted")


def test_a_device_that_is_gone_is_withdrawn_unless_a_pod_has_it(dra):
    """Then it stays, tainted, as long as it is held: its claim names it."""
    [held] = one_claim(dra)
    free = next(each for each in dra.devices() if each != held)
    places = {each: dra.pci_address(each) for each in (held, free)}
    for place in places.values():
        faults.inject(dra.node.node, "remove", place)
    try:
        dra.node.eventually(lambda: dra.devices() and free not in dra.devices(), "the free one is withdrawn")
        dra.node.eventually(lambda: dra.taints(held), "the held one is tainted")
        assert dra.pod("a")["status"]["phase"] == "Running"
    finally:
        for place in places.values():
            faults.clear(dra.node.node, "remove", place)
    dra.until_published()
    dra.node.eventually(lambda: dra.taints(held) == {}, "it is well")


def test_slices_belong_to_the_node_also_after_it_was_made_anew(dra):
    """`kubectl delete node`, and a kubelet that registers again: the garbage collector takes those of the old one."""
    owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in dra.slices()}
    assert owners == {dra.get(f"/api/v1/nodes/{NAME}")["metadata"]["uid"]}
    dra.made(f"/api/v1/nodes/{NAME}", None, "DELETE")
    dra.node.kubelet.stop()
    dra.node.start_kubelet()
    uid = dra.node.eventually(lambda: dra.get(f"/api/v1/nodes/{NAME}")["metadata"]["uid"], "the node is there again")
    assert owners != {uid}

    def is_owned():
        found = dra.slices()
        return found and {each["metadata"]["ownerReferences"][0]["uid"] for each in found} == {uid}

    dra.node.eventually(is_owned, "the slices belong to it", 60)
    dra.until_published()
    dra.until_ready()
    one_claim(dra)


class Changes:
    """What happens to a node and its slices."""

    def __init__(self, dra) -> None:
        self._dra, self._random = dra, random_of(__name__)
        self._addresses = {each: dra.pci_address(each) for each in dra.devices()}
        self._broken = {"ras": set(), "remove": set()}
        self._counts = 64
        self._writers = 0

    def one(self):
        """One change, by chance; what it was."""
        what = self._random.choice([self._break_or_mend, self._break_or_mend, self._configure, self._wipe, self._write])
        return f"{what.__name__}: {what()}"

    def mend(self):
        """As at the beginning."""
        for fault, devices in self._broken.items():
            for device in list(devices):
                self._turn(fault, device)
        self._dra.configure()

    def _break_or_mend(self):
        fault, device = self._random.choice(["ras", "remove"]), self._random.choice(sorted(self._addresses))
        other = self._broken["remove" if fault == "ras" else "ras"]
        if device not in other:
            self._turn(fault, device)
        return fault, device

    def _turn(self, fault, device):
        is_broken = device in self._broken[fault]
        (faults.clear if is_broken else faults.inject)(self._dra.node.node, fault, self._addresses[device])
        self._broken[fault] ^= {device}

    def _configure(self):
        self._counts -= 1
        self._dra.configure(simulated=[CONFIG["simulated"][0] | {"count": self._counts % 64 + 1}])

    def _wipe(self):
        self._dra.made(f"{SLICES}?fieldSelector=spec.nodeName%3D{NAME}", None, "DELETE")

    def _write(self):
        [one, *_] = self._dra.slices()
        one["spec"]["devices"] = [{"name": "ghost"}]
        one["metadata"] = {"generateName": "foreign-", "ownerReferences": one["metadata"]["ownerReferences"]}
        self._writers += 1  # one that comes back is left alone
        self._dra.make(f"{SLICES}?fieldManager=writer-{self._writers}", one)


@pytest.mark.timeout(1800)
def test_slices_are_what_scan_prints_after_each_of_many_random_changes(dra):
    """Health, hot plug, another configuration, slices that are deleted, and a second writer, in any order."""
    changes = Changes(dra)
    for _ in range(CHANGES):
        what = changes.one()
        dra.node.eventually(lambda: pools(dra.slices()) == pools(dra.printed("ResourceSlice")), f"equal: {what}", 60)
    changes.mend()
    dra.until_published()


def pools(slices):
    """Driver, devices in order; without when the API server saw a taint."""
    found = {}
    for each in sorted(slices, key=lambda one: one["metadata"].get("name") or one["metadata"]["generateName"]):
        devices = found.setdefault(each["spec"]["driver"], [])
        for device in each["spec"].get("devices", []):
            for taint in device.get("taints", []):
                taint.pop("timeAdded", None)
            devices.append(by_value(device))
    return found


def test_a_taint_keeps_its_time_when_another_device_of_the_slice_changes(dra):
    """It is when the API server saw it, by which NoExecute and tolerations count."""
    first, second, *_ = dra.devices()
    for each in (first, second):
        dra.command("cordon", dra.pci_address(each))
        dra.node.eventually(lambda each=each: dra.taints(each), "it is tainted")
        if each == first:
            [before] = dra.devices()[first]["taints"]
            time.sleep(1.1)  # times are whole seconds
    [after] = dra.devices()[first]["taints"]
    for each in (first, second):
        dra.command("uncordon", dra.pci_address(each))
    dra.node.eventually(lambda: not dra.taints(first) and not dra.taints(second), "no taint is left")
    assert after == before


def test_slices_that_the_server_has_normalised_are_not_written_again(dra):
    """It drops empty maps, and writes quantities its own way. At rest devherd asks nothing; its watches go on."""
    dra.node.eventually(lambda: rests(dra), "it is at rest")


def rests(dra):
    count = dra.call_count()
    time.sleep(REST_SECONDS)
    return dra.call_count() == count
