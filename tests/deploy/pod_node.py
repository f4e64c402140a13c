"""A node for the DaemonSet's pod: an embedded kubelet, a host tree, and the pod beside them."""

import subprocess
import sys
import time
from pathlib import Path

import yaml
from kustomizations import KUBERNETES
from pod import Pod

FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


def shipped_pod_spec():
    """The pod as daemonset.yaml has it."""
    return yaml.safe_load((KUBERNETES / "base/daemonset.yaml").read_text())["spec"]["template"]["spec"]


class PodNode:
    """An embedded kubelet, and the pod of `pod_spec` beside it.

    `host` is where the pod's volumes find the host's files; what is neither there nor the kubelet's gets a directory of
    the test's. A simulated host brings the marks by which devherd knows it for one.
    """

    def __init__(self, directory, pod_spec, config, host=Path("/")):
        self.kubelet_dir = directory / "kubelet"
        self._kubelet = subprocess.Popen(
            [sys.executable, "-m", "devherd", "sim", "kubelet", "--kubelet-dir", self.kubelet_dir],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        volumes = self._volumes(pod_spec, directory, host)
        (volumes["config"] / "config.yaml").write_text(yaml.safe_dump(config))
        self.pod = Pod(pod_spec, volumes, directory, host.glob(".devherd-*"))

    def _volumes(self, pod_spec, directory, host):
        sources = {}
        for volume in pod_spec["volumes"]:
            path = Path(volume.get("hostPath", {}).get("path", "/-"))
            of_host = host / path.relative_to("/")
            if path.is_relative_to("/var/lib/kubelet"):
                source = self.kubelet_dir / path.name
            elif of_host.is_dir() and volume["name"] not in {"run", "cdi"}:
                source = of_host
            else:
                source = directory / volume["name"]
            source.mkdir(parents=True, exist_ok=True)
            sources[volume["name"]] = source
        sources["run"].chmod(0o777)  # as the kubelet makes an emptyDir
        return sources

    def kubelet(self, *words):
        """What the embedded kubelet answers."""
        command = [sys.executable, "-m", "devherd", "sim", "kubelet", *words, "--kubelet-dir", self.kubelet_dir]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def http(self, path):
        """What the exporter answers at the pod's address; nothing when it refuses."""
        return self.pod.inside(sys.executable, "-c", FETCH, f"http://127.0.0.1:9478{path}").stdout

    def wait_until_ready(self):
        """Until the kubelet has everything that was found."""
        self.wait_for(lambda: self.http("/readyz") == "ok\n" and '"registered": true' in self.http("/api/v1/inventory"))

    def wait_for(self, condition):
        """Until it is so, while the pod runs."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.pod.log()
            assert self.pod.runs(), self.pod.log()
            time.sleep(0.1)

    def end(self):
        """The exit code of the pod."""
        self._kubelet.terminate()
        self._kubelet.wait(60)
        return self.pod.end()
