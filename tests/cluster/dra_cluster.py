"""A cluster whose node serves DRA: 8 AMD GPUs and 64 simulated devices, asked for by claims."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml
from cdi_runtime import Runtime
from control_plane import NODES_USER, PODS, ControlPlane
from private_machine import NAME
from whole_node import QUICK, WholeNode, pod

from devherd import spool
from devherd.dra.pool_files import PoolFiles
from devherd.proto import spool_pb2
from devherd.settings import Settings

GPU, SIMULATED = "gpu.amd.com", "simulated.devherd.io"
RESOURCE = {GPU: "amd.com/gpu", SIMULATED: "example.com/simulated"}
COUNTS = {GPU: 8, SIMULATED: 64}
CONFIG = QUICK | {
    "front_end": "dra",
    "kubernetes": {"events": False},
    "simulated": [{"name": RESOURCE[SIMULATED], "count": COUNTS[SIMULATED]}],
}
RESOURCES = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{RESOURCES}/resourceslices", f"{RESOURCES}/deviceclasses"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
CONTROLLERS = (
    "resourceclaim-controller",
    "device-taint-eviction-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
)
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:nodes", "system:serviceaccounts"]}, {"level": "None"}],
}
AS_BY_DEFAULT = {"syncFrequency": "1m0s"}
"""The kubelet's, after which it looks again at a pod whose claim could not be prepared: nothing here may need that."""


_NOT_KNOWN = "no relationship found between node"
ENVIRONMENT = {"DEVHERD_KUBECONFIG": "/run/kubelet.conf", "NODE_NAME": NAME}


class DraCluster(ControlPlane):
    """Kubelet and devherd have the credential of a kubelet, and no right beside."""

    user = NODES_USER
    """devherd's."""
    server_options: tuple[str, ...] = ()
    """Of the API server, beside the usual."""

    def __init__(self, node: WholeNode) -> None:
        (node.directory / "run/audit.json").write_text(json.dumps(AUDIT))
        super().__init__(
            node,
            "--disable-admission-plugins=ServiceAccount",
            "--enable-admission-plugins=NodeRestriction",
            "--audit-policy-file=/run/audit.json",
            "--audit-log-path=/run/audit.log",
            *self.server_options,
            authorization="Node,RBAC",
        )
        self.start_controllers(*CONTROLLERS)
        node.kubelet_options = ("--kubeconfig=/run/kubelet.conf",)
        node.change_kubelet(**AS_BY_DEFAULT)
        node.start("amd-8", CONFIG, **self.give_access())
        self.until_ready()
        for each in self.printed("DeviceClass"):
            self.make(CLASSES, each)
        self.until_published()
        self.until_registered()

    def give_access(self):
        """Let devherd in: the environment in which it finds the API server."""
        return ENVIRONMENT

    # --- what is published

    def printed(self, kind):
        """The objects of a kind that `devherd scan --as dra` prints for this node."""
        options = [f"--config={self.node.directory}/config.yaml", f"--host-root={self.node.directory}/node"]
        said = self.command("scan", "--as", "dra", "--output", "json", *options)
        return [each for each in json.loads(said)["items"] if each["kind"] == kind]

    def slices(self):
        """Of this node, as they are in the API server."""
        return self.get(f"{SLICES}?fieldSelector=spec.nodeName%3D{NAME}")["items"]

    def devices(self, driver=GPU):
        """Those of a complete pool of the driver's, by name."""
        slices = [each["spec"] for each in self.slices() if each["spec"]["driver"] == driver]
        newest = max((each["pool"]["generation"] for each in slices), default=0)
        slices = [each for each in slices if each["pool"]["generation"] == newest]
        if not slices or len(slices) != slices[0]["pool"]["resourceSliceCount"]:
            return {}
        return {device["name"]: device for each in slices for device in each.get("devices", [])}

    def taints(self, device, driver=GPU):
        """The keys and effects of a device's taints."""
        return {each["key"]: each["effect"] for each in self.devices(driver).get(device, {}).get("taints", [])}

    def counts(self):
        """How many devices of each driver pods can get."""
        return {driver: len(self.devices(driver)) for driver in COUNTS}

    def until_published(self, counts=None):
        """Wait until each driver has so many devices in the API server, by default all."""
        self.node.eventually(lambda: self.counts() == (counts or COUNTS), f"published: {counts or COUNTS}", 60)

    # --- what serves

    def child(self, name):
        """A process of devherd as the supervisor has it: `dra:a`."""
        children = spool.read_or_empty(self.run_dir / "children.pb", spool_pb2.Children).children
        return next((each for each in children if each.name == name), spool_pb2.Child())

    @property
    def run_dir(self) -> Path:
        """Of the instance that was started last."""
        return self.node.directory / "run" / self.node.run_dir

    def is_registered(self, name):
        """Whether all drivers of `dra:<name>` are registered with the kubelet that runs."""
        state = spool.read_or_empty(self.run_dir / f"dra/{name}/current.pb", spool_pb2.DraState)
        child = self.child(f"dra:{name}")  # the file may be of the process before
        began = child.started_timestamp_seconds
        found = {each.name for each in state.drivers if each.registered_timestamp_seconds > began and each.registered}
        return found >= set(COUNTS) and child.pid != 0

    def until_registered(self):
        """Wait until both processes are."""
        for name in "ab":
            self.node.eventually(lambda name=name: self.is_registered(name), f"dra:{name} is registered", 60)

    def kill(self, name, number=signal.SIGKILL):
        """Send a signal to a process of devherd. Its number is that inside of the private machine."""
        pid = self.node.eventually(lambda: self.child(name).pid, f"{name} runs")
        assert self.node.machine.start("kill", f"-{int(number)}", pid).popen.wait() == 0
        return pid

    def until_replaced(self, name, pid):
        """Wait until a process has a successor, which is registered if it serves."""
        self.node.eventually(lambda: self.child(name).pid not in (0, pid), f"{name} has a successor", 60)
        if name.startswith("dra:"):
            self.node.eventually(lambda: self.is_registered(name[-1]), f"{name} is registered", 60)

    # --- claims and pods

    def claim(self, name, driver=GPU, count=1, **exactly):
        """Have a claim for devices of a class."""
        self.make(CLAIMS, {"metadata": {"name": name}, **claim_spec(driver, count, **exactly)})

    def template(self, name, driver=GPU, count=1):
        """Have a template of claims."""
        self.make(TEMPLATES, {"metadata": {"name": name}, "spec": claim_spec(driver, count)})

    def with_claim(self, name, claim="", template=""):
        """Have a pod whose container has a claim, by its name or by a template's."""
        made = pod(name, {})
        source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        made["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
        made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        self.make(PODS, made)

    def allocated(self, claim):
        """The devices of a claim: driver and name."""
        allocation = self.get(f"{CLAIMS}/{claim}").get("status", {}).get("allocation", {})
        return [(each["driver"], each["device"]) for each in allocation.get("devices", {}).get("results", [])]

    def claim_of(self, name):
        """The name of the claim that was made for a pod, from a template or for an extended resource."""
        status = self.pod(name)["status"]
        if extended := status.get("extendedResourceClaimStatus"):
            return extended["resourceClaimName"]
        return status["resourceClaimStatuses"][0]["resourceClaimName"]

    def given(self, name):
        """The device nodes of a pod's container and its variables, by the CDI names that the runtime was given."""
        names = self.node.running(name).given["cdi_devices"]
        edits = Runtime(self.node.directory / "node/var/run/cdi").edits(names)
        return sorted(each["path"] for each in edits.get("deviceNodes", [])), sorted(edits.get("env", []))

    def wanted(self, claim):
        """The device nodes that the allocated devices have by devherd's own files."""
        files = PoolFiles(Settings(run_dir=self.run_dir))
        files.look()
        names = []
        for driver, device in self.allocated(claim):
            names += files.edits[files.device(driver, device).key].cdi_devices
        edits = Runtime(self.node.directory / "node/var/run/cdi").edits(names)
        return sorted(each["path"] for each in edits.get("deviceNodes", []))

    def starts(self, name):
        """Seconds from the creation of a pod until its container runs."""
        began = time.monotonic()
        self.with_claim(name, name)
        self.node.eventually(lambda: self.node.runtime.containers(name, "RUNNING"), f"{name} runs", 120)
        return time.monotonic() - began

    def end(self, *names):
        """Delete pods and wait until they are gone."""
        for name in names:
            with suppress(LookupError):  # it may be on its way
                self.delete(name)
        self.node.eventually(lambda: not set(names) & self._names(PODS), f"{names} are gone", 90)

    def _names(self, collection):
        return {each["metadata"]["name"] for each in self.get(collection)["items"]}

    def clean(self):
        """Delete all pods, claims and templates, and wait until nothing is prepared any more."""
        self.end(*self._names(PODS))
        for collection in (TEMPLATES, CLAIMS):
            for name in self._names(collection):
                self._ask(f"{collection}/{name}", "DELETE")
        self.node.eventually(lambda: not self._names(CLAIMS), "no claim is left", 60)
        self.node.eventually(lambda: not self.prepared(), "no claim is prepared", 60)

    def prepared(self):
        """The claims that devherd has prepared, by name."""
        file = self.node.directory / "state/dra/claims.pb"
        return sorted(each.name for each in spool.read_or_empty(file, spool_pb2.PreparedClaims).claims)

    def _calls(self):
        """What devherd has asked, by its audit log: verb, resource, and how it was answered."""
        for line in (self.node.directory / "run/audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == self.user and event.get("userAgent", "").startswith("devherd"):
                yield event["verb"], event["objectRef"]["resource"], event["responseStatus"]["code"]

    def call_count(self):
        """How much devherd has asked."""
        return len(list(self._calls()))

    def asked(self):
        """Verb and resource of what devherd has asked."""
        return {(verb, resource) for verb, resource, _ in self._calls()}

    def refused(self, before=0):
        """The same of what it was refused, after so many calls."""
        return {(verb, resource) for verb, resource, code in list(self._calls())[before:] if code == 403}

    def refusals(self):
        """The messages of Events that say that a claim could not be prepared; and pods for which the kubelet failed.

        It is refused a claim now and then that it reads before the API server's authorizer knows of the pod.
        """
        events = self.get("/api/v1/namespaces/default/events")["items"]
        found = [each for each in events if each["reason"] == "FailedPrepareDynamicResources"]
        ours = [each["message"] for each in found if _NOT_KNOWN not in each["message"]]
        return ours, {each["involvedObject"]["name"] for each in found if _NOT_KNOWN in each["message"]}

    def is_gone(self, name):
        """Whether there is no pod of this name."""
        return name not in self._names(PODS)

    def pci_address(self, device, driver=GPU):
        """Of a published device."""
        [found] = self.devices(driver)[device]["attributes"]["resource.kubernetes.io/pciBusID"].values()
        return found

    def command(self, *words):
        """A command of devherd, about the instance."""
        done = self.node.machine.start(
            *(sys.executable, "-m", "devherd", *words, f"--run-dir=/run/{self.node.run_dir}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, wrong = done.popen.communicate()
        assert done.popen.returncode in (0, 1), wrong  # 1: some device is not well
        return said

    def configure(self, **changes):
        """Another configuration, taken without a restart."""
        (self.node.directory / "config.yaml").write_text(yaml.safe_dump(CONFIG | changes))
        reloads = self._reloads()
        os.kill(self.node.herd.pid, signal.SIGHUP)
        self.node.eventually(lambda: self._reloads() > reloads, "devherd has read its configuration again")

    def _reloads(self):
        return spool.read_or_empty(self.run_dir / "children.pb", spool_pb2.Children).config_reloads


def claim_spec(driver, count, **exactly):
    """Of a claim for devices of the class of a driver."""
    name = {GPU: GPU}.get(driver, class_of(driver))
    request = {"name": "gpu", "exactly": {"deviceClassName": name, "count": count, **exactly}}
    return {"spec": {"devices": {"requests": [request]}}}


def class_of(driver):
    """The DeviceClass of a driver's devices."""
    return driver if driver == GPU else RESOURCE[driver].replace("/", "-")


def render(device):
    """The node of a GPU below /dev: of gpu-0-128 dri/renderD128."""
    return f"dri/renderD{device.rsplit('-', 1)[1]}"


def one_claim(dra, name="a", driver=GPU, count=1):
    """A running pod with a claim of its name; the devices that it has."""
    dra.claim(name, driver, count)
    dra.with_claim(name, name)
    dra.node.running(name)
    return [device for _, device in dra.allocated(name)]
