"""A cluster of one node: kubelet, containerd, runc and the control plane. What is not real is the hardware."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import grpc
import yaml
from control_plane import ControlPlane
from figures import note, timed
from whole_node import WholeNode

ROOT = Path(__file__).parents[3]
_KUBERNETES = ROOT / "deploy" / "kubernetes"
_CNI = ROOT / ".tools/root/usr/lib/cni"
_SOCKET = "/run/containerd/containerd.sock"
_CONTAINERD = """
version = 3
[grpc]
address = "{socket}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'localhost/small:1'
[plugins.'io.containerd.cri.v1.runtime']
# Without the right to raise limits runc could not lower an OOM score.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
{cni}
conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{runc}'
SystemdCgroup = {systemd_cgroup}
"""
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}
_NOT_HERE = ("cgroupsPerQOS", "enforceNodeAllocatable", "localStorageCapacityIsolation")


class RealCluster(WholeNode):
    """`programs` are those of tests/cluster, `runtime` is the directory of containerd's.

    `cgroup_driver` is "cgroupfs", or "systemd" in a machine that has it.
    """

    def __init__(
        self, machine, programs: Path, runtime: Path, runc: Path, kubectl: list, *, cgroup_driver: str
    ) -> None:
        super().__init__(machine, programs)
        self._runtime, self._runc, self._kubectl = runtime, runc, kubectl
        self.cgroup_driver = cgroup_driver
        self.containerd = None
        self.control_plane = None
        self._kubelet_configuration = {
            name: value for name, value in self._kubelet_configuration.items() if name not in _NOT_HERE
        } | {
            "address": "0.0.0.0",
            "cgroupDriver": cgroup_driver,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "imageGCHighThresholdPercent": 100,
        }

    def start(self, archives):
        """Everything but devherd, with the images in these archives."""
        self._write_files()
        self.start_containerd()
        for archive in archives:
            with timed(f"image {archive.stem} imported ({archive.stat().st_size >> 20} MB)"):
                self._import(archive)
        with timed("node up, from etcd's start to Ready"):
            self._start_kubernetes()

    def _import(self, archive):
        """From outside: the machine has a /dev of its own, and so another /dev/shm."""
        with archive.open("rb") as content:
            client = self.machine.start(
                *(self._runtime / "ctr", "--address", _SOCKET, "-n", "k8s.io"),
                *("images", "import", "--local", "-"),
                stdin=content,
                stdout=subprocess.DEVNULL,
            )
            if client.popen.wait():
                raise OSError(f"{archive} cannot be imported")

    def _start_kubernetes(self):
        self.control_plane = ControlPlane(self, "--allow-privileged=true")
        self.control_plane.start(
            "kube-controller-manager",
            *("--kubeconfig=/run/kubeconfig", "--leader-elect=false", "--secure-port=0"),
            "--service-account-private-key-file=/run/apiserver/apiserver.key",
            "--root-ca-file=/run/apiserver/apiserver.crt",
        )
        self.start_kubelet()
        self.control_plane.until_ready()

    def deploy(self, config, *components, tag="1"):
        """Apply deploy/kubernetes with this configuration and these components, and wait until devherd is ready."""
        self._apply(config, "../kubernetes", components, tag)
        self.until_rolled_out()

    def compare(self, config):
        """Apply the comparison of deploy/kubernetes with this configuration, beside what is there."""
        self._apply(config, "../kubernetes/compare", (), "1", directory="compare")

    def _apply(self, config, resource, components, tag, directory="pool"):
        place = self.directory / "deploy"
        if not place.exists():
            shutil.copytree(_KUBERNETES, place / "kubernetes")
        pool = place / directory
        pool.mkdir(exist_ok=True)
        (pool / "config.yaml").write_text(yaml.safe_dump(config))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "devherd",
            "resources": [resource],
            "components": [f"../kubernetes/components/{component}" for component in components],
            "images": [{"name": "registry.example.com/devherd", "newName": "localhost/devherd", "newTag": tag}],
            "configMapGenerator": [{"name": "devherd", "behavior": "replace", "files": ["config.yaml"]}],
        }
        (pool / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.kubectl("apply", "-k", pool)

    def until_rolled_out(self):
        """Wait until the only pod of devherd is the one that is wanted, and has registered everything."""
        self.kubectl("-n", "devherd", "rollout", "status", "daemonset/devherd", "--timeout=120s")
        self.eventually(lambda: self.says("/readyz") == "ok\n", "devherd's only pod has registered everything", 60)

    def devherds(self):
        """All pods of devherd, also those that end."""
        return json.loads(self.kubectl("-n", "devherd", "get", "pods", "-o", "json"))["items"]

    def devherds_pod(self):
        """The only one's name, container and how often that was started again. Raises ValueError with several."""
        [pod] = self.devherds()
        status = pod["status"]["containerStatuses"][0]
        return pod["metadata"]["name"], status["containerID"], status["restartCount"]

    def says(self, path):
        """A page of devherd's only pod; empty while there is another number of pods."""
        pods = self.devherds()
        if len(pods) != 1:
            return ""
        return self.machine.ask(f"http://{pods[0]['status']['podIP']}:9478{path}")[1]

    def devherd(self, *words):
        """What a command says in devherd's pod. Raises OSError with its words when it fails."""
        return self.kubectl("-n", "devherd", "exec", self.devherds_pod()[0], "--", "devherd", *words)

    def memory_of_devherd(self):
        """MiB that its pod's cgroup cannot give back, and the most that it has had."""
        [pod] = self.devherds()
        uid = pod["metadata"]["uid"]
        names = (f"*pod{uid}", "-o", "-name", f"*pod{uid.replace('-', '_')}.slice")
        found = self.run("find", "/sys/fs/cgroup/memory", "-type", "d", "(", "-name", *names, ")")
        group = found.strip()
        usage, most = (
            int(self.run("cat", f"{group}/memory.{name}")) for name in ("usage_in_bytes", "max_usage_in_bytes")
        )
        statistics = dict(line.split() for line in self.run("cat", f"{group}/memory.stat").splitlines())
        return (usage - int(statistics["total_inactive_file"])) / 2**20, most / 2**20

    def note_memory(self, kind):
        """Put it into the figures."""
        now, most = self.memory_of_devherd()
        note(f"memory of devherd's pod, {kind}", f"{now:.0f} MiB, at most {most:.0f} MiB")

    def until_allocatable_in_status(self, resource, count):
        """Wait until the node's status has so many healthy devices."""
        self.eventually(lambda: self.control_plane.numbers(resource)[1] == count, f"{count} of {resource}", 40)

    def create_pod(self, name, limits):
        """A pod that sleeps, once it runs: its container, and how often that was started again."""
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(limits)})
        return self.control_plane.until_running(name)

    def create(self, manifest):
        """Have an object."""
        self.kubectl("create", "-f", "-", given=json.dumps(manifest))

    def inside(self, pod, script):
        """What a shell in a pod says. Raises OSError with its words when it fails."""
        return self.kubectl("exec", pod, "--", "sh", "-c", script)

    def opening(self, pod, path):
        """What opening a file comes to in a pod: the shell's words, or nothing when it opens."""
        try:
            return self.inside(pod, f": 2>&1 <{path}")
        except OSError as error:
            return str(error)

    def start_containerd(self):
        """containerd; it is back when its CRI answers the kubelet's first question, which is later than its own API."""
        with (self.directory / "containerd.log").open("ab") as log:
            self.containerd = self.machine.start(
                self._runtime / "containerd",
                "--config=/run/containerd.toml",
                stdout=log,
                stderr=log,
                env=os.environ | {"PATH": f"{self._runtime}:{os.environ['PATH']}"},
            )
        with grpc.insecure_channel(f"unix:{self.directory}/run/containerd/containerd.sock") as channel:
            version = channel.unary_unary("/runtime.v1.RuntimeService/Version")
            self.eventually(lambda: version(b"", timeout=10), "containerd's CRI answers")

    def ctr(self, *words):
        """What containerd's own client says."""
        return self.run(self._runtime / "ctr", "--address", _SOCKET, "-n", "k8s.io", *words)

    def run(self, *command, given=""):
        """What a program says that runs in the machine. Raises OSError with its words when it fails."""
        inside = self.machine.start(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        said, wrong = inside.popen.communicate(given)
        if inside.popen.returncode:
            raise OSError(f"{' '.join(map(str, command))}: {said}{wrong}")
        return said

    def kubectl(self, *words, given=""):
        """What kubectl says. Raises OSError with its words when it fails."""
        return self.run(*self._kubectl, "--kubeconfig=/run/kubeconfig", *words, given=given)

    def begin_kubectl(self, *words):
        """A kubectl that goes on; its stdout is a pipe."""
        words = (*self._kubectl, "--kubeconfig=/run/kubeconfig", *words)
        return self.machine.start(*words, stdout=subprocess.PIPE, text=True).popen

    def reboot(self):
        """All containers end at once, with kubelet and runtime, and what was in devherd's /run is gone."""
        self.kubelet.stop(signal.SIGKILL)
        for task in self.ctr("tasks", "ls", "-q").split():
            with suppress(OSError):  # it has ended with another of its pod
                self.ctr("tasks", "kill", "--signal", "SIGKILL", task)
        self.containerd.stop(signal.SIGKILL)
        self.run("rm", "-rf", "/run/devherd")
        self.start_containerd()
        self.start_kubelet()

    def _cni_programs(self):
        """Where they are, as this containerd is told; before 2.1 it takes one directory."""
        said = subprocess.run([self._runtime / "containerd", "--version"], check=True, capture_output=True, text=True)
        major, minor = map(int, re.search(r" v?(\d+)\.(\d+)\.", said.stdout).groups())
        return f"bin_dirs = ['{_CNI}']" if (major, minor) >= (2, 1) else f"bin_dir = '{_CNI}'"

    def _write_files(self):
        configuration = _CONTAINERD.format(
            socket=_SOCKET,
            cni=self._cni_programs(),
            runc=self._runc,
            systemd_cgroup=str(self.cgroup_driver == "systemd").lower(),
        )
        (self.directory / "run/containerd.toml").write_text(configuration)
        self.run("tee", "/etc/cni/net.d/10-pods.conflist", given=json.dumps(_NETWORK))


def pod_spec(limits, *command):
    """Of a pod with one container, `main`: it sleeps, or does this."""
    resources = {"limits": {resource: str(count) for resource, count in limits.items()}}
    main = {"name": "main", "image": "localhost/small:1", "resources": resources}
    return {"terminationGracePeriodSeconds": 0, "containers": [main | ({"command": [*command]} if command else {})]}
