"""devherd's DRA drivers and the kubelet's manager of claims, of each Kubernetes release that has it."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import grpc
import pytest
from claims_api import NODE, AllocatedClaims
from harness_program import KUBERNETES
from real_kubelet import KubeletError, container, pod
from resource_child import eventually

from devherd import spool
from devherd.dra.pool_files import PoolFiles
from devherd.proto import spool_pb2
from devherd.proto.podresources_v1_pb2 import ListPodResourcesRequest
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from devherd.settings import Settings
from devherd_sim.node import faults

GPU, SIMULATED = "gpu.amd.com", "simulated.devherd.io"
CONFIG = {
    "front_end": "dra",
    "health": {"poll": "100ms", "recover_after": 2},
    "scan": {"period": "500ms"},
    "simulated": [{"name": "example.com/simulated", "count": 8}],
}
TIMES = 1 if KUBERNETES >= (1, 37) else 2
"""How often a container gets a device that was prepared twice: kubernetes#140274."""


class DraNode:
    """A kubelet, an API server with claims for each of kubelet and devherd, and devherd."""

    def __init__(self, node, directory) -> None:
        self.herd, self.kubelet, self.directory = node, node.kubelet, directory
        self.api = AllocatedClaims(directory / "api")
        self.devherds_api = AllocatedClaims(directory / "devherds-api", self.api.claims)
        node.environment = {"NODE_NAME": NODE, "DEVHERD_KUBECONFIG": str(self.devherds_api.kubeconfig)}
        node.prepare("amd-8", CONFIG)
        gates = {"ResourceHealthStatus": True}  # off until 1.36
        node.kubelet.start(plugins_registry=True, api_server=self.api.url, node=NODE, feature_gates=gates)
        node.start_herd()
        self.until_registered()

    @property
    def settings(self):
        return Settings(run_dir=self.directory / "run")

    def child(self, name):
        children = spool.read_or_empty(self.settings.children_file, spool_pb2.Children).children
        return next((each for each in children if each.name == name), spool_pb2.Child())

    def is_registered(self, letter):
        """Whether the kubelet has both drivers of the process that runs; the file may be of the one before."""
        state = spool.read_or_empty(self.directory / f"run/dra/{letter}/current.pb", spool_pb2.DraState)
        began = self.child(f"dra:{letter}").started_timestamp_seconds
        found = {each.name for each in state.drivers if each.registered_timestamp_seconds > began and each.registered}
        return found >= {GPU, SIMULATED}

    def registered_at(self, letter):
        """When the driver was registered last that was so the longest ago."""
        state = spool.read_or_empty(self.directory / f"run/dra/{letter}/current.pb", spool_pb2.DraState)
        return min(each.registered_timestamp_seconds for each in state.drivers)

    def until_registered(self):
        for letter in "ab":
            eventually(lambda letter=letter: self.child(f"dra:{letter}").pid and self.is_registered(letter))

    def kill(self, name, number=signal.SIGKILL):
        """Signal a process, and wait until another one serves in its place."""
        pid = self.child(name).pid
        os.kill(pid, number)
        eventually(lambda: self.child(name).pid not in (0, pid))

    def prepare(self, uid, claim="c"):
        """What the container of a pod with a claim gets."""
        return self.kubelet.ask("prepare", pod=with_claim(uid, claim))["main"]

    def devices(self, driver=GPU):
        """The names of the published devices."""
        return [each.name for each in self.pools().pools.devices[driver]]

    def pools(self):
        files = PoolFiles(self.settings)
        eventually(files.look)
        return files

    def cdi_of(self, device, driver=GPU):
        """The CDI names of a device by devherd's own files."""
        files = self.pools()
        return list(files.edits[files.device(driver, device).key].cdi_devices)

    def specs(self):
        """The devices that the CDI specs of the node have, by CDI's name."""
        found = {}
        for path in self.herd.cdi.glob("*.json"):
            spec = json.loads(path.read_text())
            found |= {f"{spec['kind']}={each['name']}": each["containerEdits"] for each in spec["devices"]}
        return found

    def prepared(self):
        """The uids of the claims that devherd has a record of."""
        found = spool.read_or_empty(self.settings.prepared_claims_file, spool_pb2.PreparedClaims)
        return [each.uid for each in found.claims]

    def health(self, uid):
        """Of the only device of a pod: health and message."""
        [device] = self.kubelet.ask("claim_health", uid=uid)["main"]["claim:gpu"]
        return device["health"], device["message"]

    def until_health(self, uid, health):
        eventually(lambda: self.health(uid)[0] == health)

    def lost_connections(self):
        """How often the kubelet has seen the end of a connection to a process."""
        return len(re.findall(rf'"Connection changed".*="{GPU}".*connected=false', self.kubelet.log.read_text()))

    def close(self):
        self.api.close()
        self.devherds_api.close()


def with_claim(uid, claim):
    main = container("main", {}) | {"claims": ["gpu"]}
    return pod(uid, containers=[main]) | {"claims": {"gpu": claim}}


@pytest.fixture
def node(herd_node, directory):
    node = DraNode(herd_node, directory)
    yield node
    node.close()


def test_a_claim_is_answered_with_the_cdi_names_of_its_devices(node):
    """Which are in specs. The record of it ends when the last pod does; the kubelet says who holds it meanwhile."""
    chosen = node.devices()[2:4]
    uid = node.api.allocate("c", GPU, *chosen, pods=("a", "b"))
    names = node.prepare("a")
    assert sorted(names) == sorted(name for each in chosen for name in node.cdi_of(each))
    assert set(names) <= node.specs().keys()
    assert node.prepare("b") == names
    assert node.prepared() == [uid]
    with grpc.insecure_channel(f"unix:{node.kubelet.directory}/pod-resources/kubelet.sock") as channel:
        listed = PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=10).pod_resources
    resources = [each for pod in listed for main in pod.containers for each in main.dynamic_resources]
    assert {each.device_name for claim in resources for each in claim.claim_resources} == set(chosen)
    for each in ("a", "b"):
        node.kubelet.ask("unprepare", uid=each)
    assert node.prepared() == []


def test_the_same_claim_has_the_same_answer_of_either_process_and_after_a_restart(node):
    """Of the kubelet, whose checkpoint says nothing of whether it is prepared, and of devherd."""
    node.api.allocate("c", GPU, node.devices()[0], pods=("a", "b", "c"))
    names = node.prepare("a")
    for number, uid in enumerate(("b", "c"), 1):
        restart_kubelet(node)
        assert node.prepare(uid) == names * (1 + number * (TIMES - 1))
        node.kill(f"dra:{uid}" if uid == "b" else "dra:a")
        node.until_registered()
    assert len(node.prepared()) == 1


def restart_kubelet(node):
    """With its checkpoint, and the pods that it had."""
    pods = json.loads(json.loads((node.kubelet.directory / "dra_manager_state").read_text())["Data"])
    known = {uid: info["ClaimName"] for info in pods["ClaimInfoStateList"] for uid in info["PodUIDs"]}
    before = {letter: node.registered_at(letter) for letter in "ab"}
    node.kubelet.restart(sources_ready=False)
    for uid, claim in known.items():
        node.kubelet.ask("activate", pod=with_claim(uid, claim))
    node.kubelet.ask("sources_ready")
    eventually(lambda: all(node.registered_at(letter) > before[letter] for letter in "ab"))


def test_after_a_boot_a_claim_that_the_kubelet_has_in_its_checkpoint_has_its_specs_again(node):
    """/run is empty then, and so are the CDI specs below it: kubernetes#141433."""
    node.api.allocate("c", GPU, node.devices()[0], pods=("a", "b"))
    names = node.prepare("a")
    node.kubelet.kill()
    node.herd.stop_herd(signal.SIGKILL)
    shutil.rmtree(node.directory / "run")
    shutil.rmtree(node.herd.cdi)
    node.herd.start_herd()
    node.kubelet.start(**(node.kubelet.options | {"sources_ready": False}))
    node.kubelet.ask("activate", pod=with_claim("a", "c"))
    node.kubelet.ask("sources_ready")
    node.until_registered()
    assert node.prepare("b") == names * TIMES
    assert set(names) <= node.specs().keys()


CONNECTED_TO_THE_DYING = "error reading server preface|failed to write client preface"
"""The words of gRPC for a connection that was made, and ended before the server had said anything."""


def has_ended(pid):
    """Whether a process has closed all it had open."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_pod_that_comes_in_the_moment_of_a_process_s_end_is_served(node, letter, number):
    """The other process is registered. Only a call that is on its way to a process when that ends is lost with it.

    The kernel closes what a killed process had open one by one, and a kubelet that sees its connection end connects
    again at once: where the socket still listens, that counts as a connection until the kernel resets it.
    """
    for count, device in enumerate(node.devices()[:5]):
        uid = f"p{count}"
        node.api.allocate(f"c{count}", GPU, device, pods=(uid,))
        pid, lost = node.child(f"dra:{letter}").pid, node.lost_connections()
        os.kill(pid, number)
        eventually(lambda lost=lost: node.lost_connections() > lost)
        if number == signal.SIGKILL:
            eventually(lambda pid=pid: has_ended(pid))
        began = time.monotonic()
        try:
            names = node.prepare(uid, f"c{count}")
        except KubeletError as error:
            if number != signal.SIGKILL or not re.search(CONNECTED_TO_THE_DYING, str(error)):
                raise
            names = node.prepare(uid, f"c{count}")  # as the kubelet itself does later
        assert names == node.cdi_of(device)
        assert time.monotonic() - began < 3
        eventually(lambda pid=pid: node.child(f"dra:{letter}").pid not in (0, pid))
        node.until_registered()


def test_a_claim_waits_inside_the_call_while_the_api_server_does_not_answer(node):
    """A kubelet would come back for the pod after 60 to 90 s. Other claims are served meanwhile."""
    first, second = node.devices()[:2]
    node.api.allocate("c", GPU, first)
    node.devherds_api.refusal = (503, "etcd is away")
    waiting = node.kubelet.send("prepare", pod=with_claim("a", "c"))
    eventually(node.devherds_api.asked)
    time.sleep(1)
    assert not waiting.done()
    node.devherds_api.refusal = None
    assert waiting.result(40)["main"] == node.cdi_of(first)
    node.api.allocate("d", GPU, second, pods=("b",))
    assert node.prepare("b", "d") == node.cdi_of(second)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"device": "gpu-99-999"}, "gpu-99-999"),
        ({"pool": "node-2"}, "node-2"),
    ],
)
def test_a_claim_that_cannot_be_served_fails_at_once_and_says_why(node, wrong, words):
    node.api.allocate("c", GPU, node.devices()[0], **wrong)
    began = time.monotonic()
    with pytest.raises(KubeletError, match=words):
        node.prepare("a")
    assert time.monotonic() - began < 5
    assert node.prepared() == []


def test_a_claim_that_was_replaced_by_another_of_its_name_is_not_prepared(node):
    """The kubelet has read the one, and devherd the other."""
    node.api.allocate("c", GPU, node.devices()[0])
    node.devherds_api.claims = json.loads(json.dumps(node.api.claims))
    node.devherds_api.claims["c"]["metadata"]["uid"] = "another"
    with pytest.raises(KubeletError, match="ResourceClaim c: "):
        node.prepare("a")
    assert node.prepared() == []


def test_a_device_is_not_given_to_the_next_claim_before_the_container_that_has_it_has_ended(node):
    """Its pod was deleted by force, and so is its claim: exclusivity is the driver's."""
    device = node.devices()[0]
    node.api.allocate("c", GPU, device)
    node.prepare("a")
    del node.api.claims["c"]
    node.api.allocate("d", GPU, device, pods=("b",))
    waiting = node.kubelet.send("prepare", pod=with_claim("b", "d"))
    time.sleep(1)
    assert not waiting.done()
    node.kubelet.ask("unprepare", uid="a")
    assert waiting.result(40)["main"] == node.cdi_of(device)


def test_an_administrator_s_claim_takes_a_device_that_a_pod_has_and_blocks_nobody_afterwards(node):
    """Nor when the processes have started again, and know of both by their record."""
    device = node.devices()[0]
    node.api.allocate("c", GPU, device)
    node.prepare("a")
    node.api.allocate("all", GPU, device, pods=("admin",), adminAccess=True)
    assert node.prepare("admin", "all") == node.cdi_of(device)
    for letter in "ab":
        node.kill(f"dra:{letter}")
        node.until_registered()
    node.kubelet.ask("unprepare", uid="a")
    node.api.allocate("d", GPU, device, pods=("b",))
    assert node.prepare("b", "d") == node.cdi_of(device)
    assert len(node.prepared()) == 2


def test_a_claim_that_is_gone_from_the_api_server_is_unprepared_by_its_record(node):
    """Also while the API server does not answer."""
    node.api.allocate("c", GPU, node.devices()[0])
    node.prepare("a")
    node.api.claims.clear()
    node.devherds_api.refusal = (503, "etcd is away")
    node.kubelet.ask("unprepare", uid="a")
    assert node.prepared() == []


def test_health_of_a_device_is_that_of_the_pods_that_have_it_over_the_end_of_either_process(node):
    """The kubelet forgets all of a driver's when one of the two streams ends: the other process tells it again."""
    if KUBERNETES < (1, 36):
        pytest.skip("until 1.35 health is alpha, and is shown of claims of templates alone")
    device = node.devices()[0]
    node.api.allocate("c", GPU, device)
    node.prepare("a")
    node.until_health("a", "Healthy")
    place = f"dri/renderD{device.rsplit('-', 1)[1]}"
    faults.inject(node.herd.node, "node", place)
    node.until_health("a", "Unhealthy")
    assert "Error receiving from WatchResources" not in node.kubelet.log.read_text()
    assert node.health("a")[1]
    for letter in "ab":
        node.kill(f"dra:{letter}")
        node.until_health("a", "Unhealthy")
        node.until_registered()
    faults.clear(node.herd.node, "node", place)
    node.until_health("a", "Healthy")


def test_both_processes_of_a_driver_are_registered_for_the_versions_that_the_kubelet_wants(node):
    """And again by a kubelet that starts later: it finds the sockets."""
    registry = node.kubelet.directory / "plugins_registry"
    names = {f"{driver}-{letter}-reg.sock" for driver in (GPU, SIMULATED) for letter in "ab"}
    assert {each.name for each in registry.iterdir()} == names
    before = {letter: node.registered_at(letter) for letter in "ab"}
    node.kubelet.restart()
    eventually(lambda: all(node.registered_at(letter) > before[letter] for letter in "ab"))
    node.api.allocate("c", GPU, node.devices()[0])
    assert node.prepare("a") == node.cdi_of(node.devices()[0])
