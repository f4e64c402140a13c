"""Pods that hold devices by one front end keep the node from the other: their devices would be given twice."""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import scratch
from hypothesis import given
from hypothesis import strategies as st
from test_pod_resources import Kubelet, pod

from devherd import spool
from devherd.config.resolved import ResolvedConfig
from devherd.errors import DevherdError
from devherd.instance.files import announce_standby, open_standby_file
from devherd.kubelet.other_front_end import MOST_NAMED, OtherFrontEnd, beside, listed, refuse_change
from devherd.kubelet.pod_resources import ClaimedDevice, claimed
from devherd.proto import spool_pb2
from devherd.proto.podresources_v1_pb2 import (
    CDIDevice,
    ClaimResource,
    ContainerResources,
    DynamicResource,
    ListPodResourcesResponse,
    PodResources,
)
from devherd.settings import Settings
from devherd.supervisor.first_scan import admit
from devherd.supervisor.hand_over import HandOver

GPU, NIC, DRIVER = "amd.com/gpu", "rdma/hca", "gpu.amd.com"


def claimant(name, *devices, claim="one", containers=("main",), driver=DRIVER):
    """A pod whose containers have these devices by a claim; as the kubelet has it, each has the ids of all."""
    ids = [CDIDevice(name=f"{driver}/x={device}") for device in devices]
    resources = [
        ClaimResource(driver_name=driver, pool_name="node-1", device_name=device, cdi_devices=ids) for device in devices
    ]
    dynamic = DynamicResource(claim_name=claim, claim_namespace="default", claim_resources=resources)
    return PodResources(
        name=name,
        namespace="default",
        containers=[ContainerResources(name=each, dynamic_resources=[dynamic]) for each in containers],
    )


@pytest.fixture
def settings():
    """Those of an instance without any file."""
    directory = scratch.directory()
    return Settings(run_dir=directory / "run", kubelet_dir=directory / "kubelet")


@contextmanager
def a_kubelet(settings, *pods):
    """Serves PodResources with these pods."""
    with Kubelet(settings.pod_resources_socket, *pods) as kubelet:
        yield kubelet


def served_resources(settings, *names):
    """What a child of each resource leaves."""
    for name in names:
        path = spool.path_of(settings.state_directory, spool.key_of(name))
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        spool.write(path, spool_pb2.ResourceState(name=name, registered=True))


def served_drivers(settings, *names):
    """What a process of DRA leaves."""
    path = spool.path_of(settings.dra_directory, "a")
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    spool.write(path, spool_pb2.DraState(drivers=[spool_pb2.DraDriver(name=name) for name in names]))


def prepared(settings, *drivers):
    """The records of prepared claims."""
    settings.prepared_claims_file.parent.mkdir(parents=True, exist_ok=True)
    claims = [spool_pb2.PreparedClaim(driver=driver, uid="u", namespace="default", name="one") for driver in drivers]
    spool.write(settings.prepared_claims_file, spool_pb2.PreparedClaims(claims=claims))


def test_claims_are_told_apart_by_driver_pool_and_device_and_each_container_is_a_holder():
    """The kubelet repeats the CDI ids of a driver's whole claim for each of its devices; they tell nothing."""
    answer = ListPodResourcesResponse(
        pod_resources=[
            claimant("train", "gpu-0", "gpu-1", containers=("main", "side")),
            claimant("eval", "gpu-1"),
            pod("plain", (GPU, "0000:01:00.0")),
        ]
    )
    found = claimed(answer)
    assert [*found] == [ClaimedDevice(DRIVER, "node-1", device, "default", "one") for device in ("gpu-0", "gpu-1")]
    assert [[(holder["pod"], holder["container"]) for holder in holders] for holders in found.values()] == [
        [("train", "main"), ("train", "side")],
        [("train", "main"), ("train", "side"), ("eval", "main")],
    ]


NAMES = st.sampled_from([GPU, NIC, "other.com/x"])
DRIVERS = st.sampled_from([DRIVER, "gpu.nvidia.com", "other.com"])


@given(
    plain=st.lists(st.tuples(st.sampled_from("ab"), NAMES), max_size=5),
    by_claims=st.lists(st.tuples(st.sampled_from("abc"), DRIVERS), max_size=5),
    names=st.sets(st.one_of(NAMES, DRIVERS), max_size=3),
)
def test_a_pod_counts_if_it_holds_what_the_other_front_end_may_have_given(plain, by_claims, names):
    """Devices by resource for those who start DRA, claims by driver for those who start the device plugin."""
    answer = ListPodResourcesResponse(
        pod_resources=[
            *(pod(name, (resource, "0")) for name, resource in plain),
            *(claimant(name, "d", driver=driver) for name, driver in by_claims),
        ]
    )
    for front_end, held in (("dra", plain), ("device_plugin", by_claims)):
        wanted = {}
        for name, what in held:
            if what in names:
                wanted.setdefault(f"default/{name}", set()).add(what)
        found = OtherFrontEnd(front_end, frozenset(names)).held(answer)
        assert found == {name: sorted(wanted[name]) for name in sorted(wanted)}
        assert [*found] == sorted(found)


def test_a_start_with_dra_is_refused_while_pods_hold_devices_of_the_device_plugin(settings):
    """Named with what they hold, and what to do; those of other plugins do not count."""
    served_resources(settings, GPU)
    with a_kubelet(settings, pod("train", (GPU, "1")), pod("other", ("other.com/x", "1"))):
        with pytest.raises(DevherdError) as refusal:
            admit(ResolvedConfig(common=settings, front_end="dra"))
        admit(ResolvedConfig(common=settings))
    assert str(refusal.value) == (
        "`front_end: dra` cannot serve this node yet — pods hold devices by `device_plugin`, which would be given"
        f" twice: default/train ({GPU}) — end these pods, or start devherd with `front_end: device_plugin`"
    )


@pytest.mark.parametrize("leave", [served_drivers, prepared])
def test_a_start_with_the_device_plugin_is_refused_while_pods_hold_claims_of_devherds_drivers(settings, leave):
    """By the registrations of this boot, or the records that outlive it; the drivers of others do not count."""
    with a_kubelet(settings, claimant("train", "gpu-0"), claimant("other", "x", driver="other.com")):
        admit(ResolvedConfig(common=settings))
        leave(settings, DRIVER)
        with pytest.raises(DevherdError) as refusal:
            admit(ResolvedConfig(common=settings))
        admit(ResolvedConfig(common=settings, front_end="dra"))
    assert f"default/train ({DRIVER})" in str(refusal.value)
    assert "default/other" not in str(refusal.value)
    assert refusal.value.cure == "end these pods, or start devherd with `front_end: dra`"


def test_a_node_that_has_the_devices_offered_now_from_another_plugin_counts_too(settings):
    """A vendor's own plugin was there before devherd: its pods run on."""
    settings.run_dir.mkdir(parents=True)
    offers = spool_pb2.Offers(offers=[spool_pb2.Offer(name=GPU, front_end="dra")])
    spool.write(settings.offers_file, offers)
    assert beside("dra", settings).names == {GPU}
    assert beside("dra", settings, [NIC]).names == {GPU, NIC}
    assert beside("device_plugin", settings, [NIC]).names == frozenset()


def test_a_kubelet_that_does_not_answer_lets_a_start_go_on_and_that_is_logged(settings, capfd):
    """Devices must be served again after a reboot, whichever starts first."""
    served_resources(settings, GPU)
    admit(ResolvedConfig(common=settings, front_end="dra"))
    assert "which pods hold devices by `front_end: device_plugin` is not known" in capfd.readouterr().err


def test_nobody_is_asked_where_nothing_can_be_held(settings):
    """As on each node without DRA."""
    with a_kubelet(settings, claimant("train", "gpu-0")) as kubelet:
        admit(ResolvedConfig(common=settings))
        assert kubelet.asked == 0


def test_a_reload_may_not_change_the_front_end_of_devices(settings):
    """With or without pods that hold them; without devices it may."""
    settings.run_dir.mkdir(parents=True)
    refuse_change("dra", "dra", settings)
    refuse_change("dra", "device_plugin", settings)
    device = spool_pb2.Device(id="0", vendor="amd", card="0")
    spool.write(
        settings.offers_file,
        spool_pb2.Offers(offers=[spool_pb2.Offer(name=GPU, front_end="device-plugin", devices=[device])]),
    )
    refuse_change("device_plugin", "device_plugin", settings)
    texts = []
    with a_kubelet(settings) as kubelet:
        for pods in ([], [pod("train", (GPU, "0"))]):
            kubelet.pods = pods
            with pytest.raises(DevherdError) as refusal:
                refuse_change("dra", "device_plugin", settings)
            texts.append(str(refusal.value))
    with pytest.raises(DevherdError) as refusal:
        refuse_change("dra", "device_plugin", settings)
    what = "`front_end` stays `device_plugin` while devherd runs — it has 1 device here, "
    assert [*texts, str(refusal.value)] == [
        f"{what}no pod has one — end devherd, and start it with `front_end: dra`",
        f"{what}held by default/train ({GPU}) — end these pods, end devherd, and start it with `front_end: dra`",
        f"{what}which pods hold them is not known — end these pods, end devherd, and start it with `front_end: dra`",
    ]


def test_of_many_pods_the_first_are_named():
    """A message fits a line."""
    held = {f"default/{number}": [GPU] for number in range(MOST_NAMED + 3)}
    text = listed(held)
    assert text.startswith(f"default/0 ({GPU}), ")
    assert text.endswith(f"default/{MOST_NAMED - 1} ({GPU}) and 3 more")


@pytest.mark.parametrize("front_end", ["device_plugin", "dra"])
@pytest.mark.parametrize("of_standby", ["device_plugin", "dra", ""])
def test_nothing_is_handed_over_to_another_front_end(settings, front_end, of_standby):
    """Defect: `dra` handed over to a version that knows the device plugin alone, and does not say so."""
    asked = []
    child = SimpleNamespace(pid=1, slot=0, signal=asked.append)
    settings.run_dir.mkdir(exist_ok=True)
    hand_over = HandOver(settings, front_end, SimpleNamespace(is_yielding=lambda _slot: False), lambda: None)
    announcement = open_standby_file(settings.standby_file)
    try:
        announce_standby(announcement, spool_pb2.Standby(version="1", front_end=of_standby))
        assert hand_over.lasts([child]) is (front_end == (of_standby or "device_plugin"))
    finally:
        os.close(announcement)
    assert bool(asked) is (front_end == (of_standby or "device_plugin"))
