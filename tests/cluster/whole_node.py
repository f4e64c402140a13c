"""A node with kubelet, container runtime and devherd. What is not real is the hardware, and the containers."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from fake_runtime import SOCKET, FakeRuntime
from private_machine import ADDRESS, NAME, Inside, PrivateMachine
from prometheus_client.parser import text_string_to_metric_families

from devherd.proto.podresources_v1_pb2 import AllocatableResourcesRequest, ListPodResourcesRequest
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

QUICK = {"health": {"poll": "100ms", "recover_after": 2}, "scan": {"period": "500ms"}}

_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "address": "127.0.0.1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": 10255,
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    "podLogsDir": "/var/log/pods",
    "fileCheckFrequency": "1s",
    "nodeStatusUpdateFrequency": "1s",
    "syncFrequency": "1s",
    # There are no containers, hence nothing to be kept in bounds.
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
}


class WholeNode:
    """In the directory: `node` (the simulated host), what the private machine has there, and the programs' logs."""

    _kubelet_configuration = _KUBELET

    def __init__(self, machine: PrivateMachine, program: Path) -> None:
        self.machine = machine
        self.program = program
        self.directory = machine.directory
        self.manifests = self.directory / "manifests"
        self.manifests.mkdir()
        self.runtime: FakeRuntime | None = None
        self.node: SimulatedNode | None = None
        self.kubelet: Inside | None = None
        self.herd: Inside | None = None
        self.run_dir = "devherd"
        """Below /run, of the devherd that was started last."""
        self.kubelet_options: tuple[str, ...] = ()

    def start(self, spec="fpga-1", config=None, **environment):
        """Runtime, kubelet, then devherd with this environment, on a node of the preset, or of a spec."""
        self.node = SimulatedNode.create(self.directory / "node", preset(spec) if isinstance(spec, str) else spec)
        (self.directory / "config.yaml").write_text(json.dumps(QUICK | (config or {})))
        self.start_runtime()
        self.start_kubelet()
        self.start_herd(**environment)

    def start_runtime(self):
        """A container runtime that knows of no container."""
        self.runtime = FakeRuntime(self.machine, self.program)

    def change_kubelet(self, **options):
        """Settings of the kubelet, from its next start on."""
        self._kubelet_configuration = self._kubelet_configuration | options

    def start_kubelet(self):
        """The kubelet; it is back when it takes registrations."""
        path = self.directory / "run/kubelet.json"
        path.write_text(json.dumps(self._kubelet_configuration | {"staticPodPath": str(self.manifests)}))
        options = [f"--hostname-override={NAME}", f"--node-ip={ADDRESS}", "--cert-dir=/run/kubelet-certificates"]
        options += ["--root-dir=/var/lib/kubelet", *self.kubelet_options]
        with (self.directory / "kubelet.log").open("ab") as log:
            self.kubelet = self.machine.start(
                self.program, "kubelet", "--config=/run/kubelet.json", *options, stderr=log, stdout=log
            )
        self.eventually(self._takes_registrations, "the kubelet takes registrations")

    def start_herd_as_unit(self, **environment):
        """Start devherd as systemd would with `Type=notify`, and wait until it is ready."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(self.directory / "run/notify"))
            manager.settimeout(30)
            self.start_herd(NOTIFY_SOCKET="/run/notify", **environment)
            assert manager.recv(100).startswith(b"READY=1\n")
        (self.directory / "run/notify").unlink()

    def start_herd(self, run_dir="devherd", *arguments, **environment):
        """`devherd run`, all defaults but its configuration, its host and its run directory below /run."""
        self.run_dir = run_dir
        options = [f"--host-root={self.directory}/node", *arguments]
        if "DEVHERD_CONFIGS" not in environment:
            options.append(f"--config={self.directory}/config.yaml")
        with (self.directory / "herd.log").open("ab") as log:
            self.herd = self.machine.start(
                sys.executable,
                *("-m", "devherd", "run", *options, f"--run-dir=/run/{run_dir}"),
                stderr=log,
                env=os.environ | environment,
            )

    def scan(self):
        """What `devherd scan` says: the devices of each resource by id."""
        options = [f"--config={self.directory}/config.yaml", f"--host-root={self.directory}/node", "--output=json"]
        done = subprocess.run([sys.executable, "-m", "devherd", "scan", *options], capture_output=True, check=True)
        resources = json.loads(done.stdout)["resources"]
        return {resource["name"]: {each["id"]: each for each in resource["devices"]} for resource in resources}

    def as_scanned(self, name):
        """What `devherd scan` says of the devices that a pod holds, as a container with all of them has it."""
        scanned, held = self.scan(), self.held(name)["main"]
        return given(*(scanned[kind][each] for kind, ids in held.items() for each in scanned[kind] if each in ids))

    def static_pod(self, name, limits):
        """Put the manifest of a pod in place, which has one container, `main`; the pod's name on this node."""
        unfinished = self.directory / f"{name}.json"
        unfinished.write_text(json.dumps(pod(name, limits)))
        unfinished.rename(self.manifests / f"{name}.json")
        return f"{name}-{NAME}"

    def running(self, name):
        """The container that the pod runs, once it does."""
        return self.eventually(lambda: self.runtime.containers(name, "RUNNING"), f"{name} runs")[-1]

    def pods(self):
        """The pods as the kubelet has them, by name."""
        with suppress(OSError):
            status, content = self.machine.ask("http://127.0.0.1:10255/pods")
            if status == 200:
                return {each["metadata"]["name"]: each for each in json.loads(content)["items"] or []}
        return {}

    def held(self, name):
        """The devices that a pod holds, as PodResources says: container → resource → ids."""
        held = {}
        for each in self._pod_resources("List", ListPodResourcesRequest()).pod_resources:
            for container in each.containers if each.name == name else ():
                held[container.name] = _by_resource(container.devices)
        return held

    def allocatable(self, name):
        """The healthy devices of a resource, as PodResources says."""
        answer = self._pod_resources("GetAllocatableResources", AllocatableResourcesRequest())
        return _by_resource(answer.devices).get(name, [])

    def until_allocatable(self, name, count):
        """Wait until the kubelet has so many healthy devices of a resource."""
        self.eventually(lambda: len(self.allocatable(name)) == count, f"{count} of {name} are allocatable")

    def allocated_in_metrics(self):
        """`devherd_device_allocated`: resource, device, namespace, pod and container of each."""
        content = self.machine.ask("http://127.0.0.1:9478/metrics")[1]
        labels = ("resource_name", "device_id", "namespace", "pod", "container")
        return {
            tuple(sample.labels[label] for label in labels)
            for family in text_string_to_metric_families(content)
            for sample in family.samples
            if sample.name == "devherd_device_allocated"
        }

    def eventually(self, condition, what, seconds=30.0):
        """The first true value of `condition`; fails with the ends of all logs when there is none in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(OSError, LookupError, grpc.RpcError):
                value = condition()
                if value:
                    return value
            time.sleep(0.02)
        pytest.fail(f"not within {seconds:.0f} s: {what}\n{self.ends_of_logs()}")

    @property
    def log(self):
        """What devherd has said."""
        path = self.directory / "herd.log"
        return path.read_text() if path.exists() else ""

    def ends_of_logs(self, size=3000):
        """What the programs have said last."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-size:]}" for log in sorted(self.directory.glob("*.log")))

    def close(self):
        """End devherd in good order, and the runtime's pipes; the rest ends with the machine."""
        if self.herd:
            self.herd.stop()
        if self.runtime:
            self.runtime.stop()

    def _takes_registrations(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.directory / "kubelet/device-plugins/kubelet.sock"))
        return True

    def _pod_resources(self, method, request):
        with grpc.insecure_channel(f"unix:{self.directory}/kubelet/pod-resources/kubelet.sock") as channel:
            return getattr(PodResourcesListerStub(channel), method)(request, timeout=10)


def pod(name, limits):
    """A pod with one container, `main`."""
    limits = {resource: str(count) for resource, count in limits.items()}
    main = {"name": "main", "image": "any", "imagePullPolicy": "Never", "resources": {"limits": limits}}
    specification = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [main]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": specification}


def given(*devices):
    """What a container with these devices of `devherd scan` has: everything once, texts of one name with commas."""
    alike = {
        kind: sorted({json.dumps(each, sort_keys=True) for device in devices for each in device[kind]})
        for kind in ("nodes", "mounts", "cdi_devices")
    }
    content = {kind: [json.loads(each) for each in found] for kind, found in alike.items()}
    for kind in ("envs", "annotations"):
        texts = [item for device in devices for item in device[kind].items()]
        content[kind] = {name: ",".join(dict.fromkeys(v for k, v in texts if k == name)) for name, _ in texts}
    return content


def _by_resource(devices):
    held = {}
    for each in devices:
        held.setdefault(each.resource_name, []).extend(each.device_ids)
    return {resource: sorted(ids) for resource, ids in held.items()}
