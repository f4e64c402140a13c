"""The real device manager behind a scenario of tests/sim."""

from pathlib import Path
from typing import Any

from embedded_node import seen_checkpoint
from real_kubelet import RealKubelet


class RealNode:
    """The Kubelet of tests/sim/scenario.py on the harness."""

    def __init__(self, program: Path, directory: Path, log: Path) -> None:
        self.kubelet = RealKubelet(program, directory, log)
        self.plugins = self.kubelet.plugins
        self.registry = directory / "plugins_registry"
        self._pods: dict[str, dict[str, Any]] = {}

    def start(self, policy, numa_nodes):
        nodes = list(range(numa_nodes))
        self.kubelet.start(policy=policy, numa_nodes=nodes, plugins_registry=True)

    def stop(self):
        self.kubelet.kill()

    def restart(self, *, sources_ready, running):
        containers = [{"pod_uid": uid, "name": name, "id": f"{uid}/{name}", "running": True} for uid, name in running]
        self.kubelet.restart(sources_ready=sources_ready, containers=containers)
        for pod in self._pods.values():
            self.kubelet.ask("activate", pod=pod)

    def admit(self, pod):
        seen = self.kubelet.ask("admit", pod=pod)
        if seen["admitted"]:
            self._pods[pod["uid"]] = pod
        else:
            self._pods.pop(pod["uid"], None)
        return seen | {"containers": _told(seen["containers"])}

    def run(self, pod):
        return _told(self.kubelet.ask("run", pod=pod))

    def free(self, uid):
        self._pods.pop(uid)
        self.kubelet.ask("free", uid=uid)

    def capacity(self, resource):
        seen = self.kubelet.capacity(resource)
        return list(seen) if seen is not None else None

    def devices(self, resource):
        return self.kubelet.devices(resource)

    def grace_passes(self, resource):
        self.kubelet.ask("grace_passes", resource=resource)
        self.capacity(resource)  # a kubelet forgets when it looks at its node, every 10 s

    def ended_streams(self):
        return self.kubelet.log.read_text().count("ListAndWatch ended unexpectedly for device plugin")

    def checkpoint(self):
        return seen_checkpoint(self.plugins)


def _told(containers):
    """A container that cannot be started has its error and nothing else."""
    return {name: {"error": told["error"]} if told["error"] else told for name, told in (containers or {}).items()}
