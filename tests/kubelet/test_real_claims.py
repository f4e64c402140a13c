"""What the kubelet's manager of claims does with a DRA driver: the facts that devherd's own is built on."""

import json

import pytest
from claims_api import NODE, AllocatedClaims
from harness_program import KUBERNETES
from raw_driver import RawDriver
from real_kubelet import KubeletError, RealKubelet, container, pod
from resource_child import eventually

from devherd.proto import dra_health_v1_pb2 as health_v1
from devherd.proto import dra_v1_pb2 as v1

DRIVER = "raw.devherd.test"
APPENDS = KUBERNETES < (1, 37)
"""Whether the devices of a second answer are kept beside those of the first: kubernetes#140274."""


@pytest.fixture
def api(directory):
    server = AllocatedClaims(directory / "api")
    yield server
    server.close()


@pytest.fixture
def kubelet(directory, harness, api):
    """A kubelet that knows claims, with health of devices also where that is off by default."""
    kubelet = RealKubelet(harness, directory / "k", directory / "kubelet.log")
    kubelet.directory.mkdir()
    gates = {"ResourceHealthStatus": True}
    kubelet.start(plugins_registry=True, api_server=api.url, node=NODE, feature_gates=gates)
    yield kubelet
    kubelet.kill()


@pytest.fixture
def driver(kubelet):
    driver = RawDriver(kubelet.directory, DRIVER)
    eventually(lambda: driver.told == [(True, "")])
    yield driver
    driver.stop()


def with_claim(uid, claim="c", request=""):
    """A pod whose only container has a claim."""
    main = container("main", {}) | {"claims": [f"gpu/{request}" if request else "gpu"]}
    return pod(uid, containers=[main]) | {"claims": {"gpu": claim}}


def made(name, *cdi, requests=("gpu",)):
    return v1.Device(request_names=requests, pool_name=NODE, device_name=name, cdi_device_ids=cdi)


def test_a_claim_is_prepared_once_for_all_its_pods_and_unprepared_after_the_last(api, kubelet, driver):
    uid = api.allocate("c", DRIVER, "gpu-0", pods=("a", "b"))
    driver.devices[uid] = [made("gpu-0", "vendor.test/gpu=0")]
    for each in ("a", "b"):
        assert kubelet.ask("prepare", pod=with_claim(each)) == {"main": ["vendor.test/gpu=0"]}
    assert driver.prepared == [uid]
    kubelet.ask("unprepare", uid="a")
    assert driver.unprepared == []
    kubelet.ask("unprepare", uid="b")
    assert driver.unprepared == [uid]


def test_a_container_gets_the_devices_of_its_request_alone(api, kubelet, driver):
    uid = api.allocate("c", DRIVER, "gpu-0", "gpu-1")
    driver.devices[uid] = [
        made("gpu-0", "vendor.test/gpu=0"),
        made("gpu-1", "vendor.test/gpu=1", requests=("other",)),
        made("gpu-2", "vendor.test/gpu=2", requests=()),
    ]
    assert sorted(kubelet.ask("prepare", pod=with_claim("a", request="gpu"))["main"]) == [
        "vendor.test/gpu=0",
        "vendor.test/gpu=2",
    ]


def test_a_kubelet_that_starts_again_prepares_again_what_its_checkpoint_has(api, kubelet, driver):
    """For the first new pod of the claim; until Kubernetes 1.36 each answer adds its devices to those of before."""
    uid = api.allocate("c", DRIVER, "gpu-0", pods=("a", "b"))
    driver.devices[uid] = [made("gpu-0", "vendor.test/gpu=0")]
    kubelet.ask("prepare", pod=with_claim("a"))
    kubelet.restart(sources_ready=False)
    kubelet.ask("activate", pod=with_claim("a"))
    kubelet.ask("sources_ready")
    eventually(lambda: len(driver.told) == 2)
    times = 2 if APPENDS else 1
    assert kubelet.ask("prepare", pod=with_claim("b")) == {"main": ["vendor.test/gpu=0"] * times}
    assert driver.prepared == [uid, uid]
    (kept,) = json.loads(json.loads((kubelet.directory / "dra_manager_state").read_text())["Data"])[
        "ClaimInfoStateList"
    ]
    assert sorted(kept["PodUIDs"]) == ["a", "b"]


def test_each_start_of_a_kubelet_deletes_all_slices_of_the_node(api, kubelet):
    eventually(lambda: api.wiped == [f"fieldSelector=spec.nodeName%3D{NODE}"])
    kubelet.restart()
    eventually(lambda: len(api.wiped) == 2)


def test_the_words_of_the_driver_are_those_of_the_failed_pod(api, kubelet, driver):
    api.allocate("c", DRIVER, "gpu-0")
    driver.error = "gpu-0 is on fire"
    with pytest.raises(KubeletError, match="ResourceClaim c: gpu-0 is on fire"):
        kubelet.ask("prepare", pod=with_claim("a"))


def test_a_claim_of_a_driver_that_is_not_registered_fails_at_once(api, kubelet):
    """Nothing waits for it: the pod does, for 60 to 90 s."""
    api.allocate("c", DRIVER, "gpu-0")
    with pytest.raises(KubeletError, match=f"DRA driver {DRIVER} is not registered"):
        kubelet.ask("prepare", pod=with_claim("a"))


def test_of_two_processes_of_a_driver_the_one_that_is_left_is_asked(api, kubelet, driver):
    """The one that registered last is asked, while it is connected."""
    second = RawDriver(kubelet.directory, DRIVER, socket=f"{DRIVER}-b-reg.sock")
    eventually(lambda: second.told == [(True, "")])
    for number, asked in enumerate((second, driver)):
        uid = api.allocate(f"c{number}", DRIVER, "gpu-0", pods=(f"p{number}",))
        kubelet.ask("prepare", pod=with_claim(f"p{number}", f"c{number}"))
        assert asked.prepared == [uid]
        if asked is second:
            second.stop()


def test_health_is_told_of_the_pods_that_hold_the_device_and_forgotten_with_the_stream(api, kubelet, directory):
    """By the first CDI name; the message is there from Kubernetes 1.36 on."""
    if KUBERNETES < (1, 37):
        pytest.skip("v1.DRAResourceHealth is asked for since Kubernetes 1.37")
    driver = RawDriver(kubelet.directory, DRIVER)
    uid = api.allocate("c", DRIVER, "gpu-0")
    driver.devices[uid] = [made("gpu-0", "vendor.test/gpu=0", "vendor.test/gpu=more")]
    eventually(lambda: driver.told)
    kubelet.ask("prepare", pod=with_claim("a"))
    device = health_v1.DeviceIdentifier(pool_name=NODE, device_name="gpu-0")
    driver.send(health_v1.DeviceHealth(device=device, health=health_v1.UNHEALTHY, message="xid 79"))
    sick = [{"id": "vendor.test/gpu=0", "health": "Unhealthy", "message": "xid 79"}]
    eventually(lambda: kubelet.ask("claim_health", uid="a") == {"main": {"claim:gpu": sick}})
    eventually(lambda: {"event": "update", "content": ["a"]} in kubelet.events)
    driver.stop()
    unknown = [{"id": "vendor.test/gpu=0", "health": "Unknown", "message": ""}]
    eventually(lambda: kubelet.ask("claim_health", uid="a") == {"main": {"claim:gpu": unknown}})


def test_a_kubelet_without_an_api_server_knows_no_claims(directory, harness):
    kubelet = RealKubelet(harness, directory / "k", directory / "kubelet.log")
    kubelet.directory.mkdir()
    kubelet.start()
    with pytest.raises(KubeletError, match="this kubelet knows no claims"):
        kubelet.ask("prepare", pod=with_claim("a"))
    kubelet.kill()
