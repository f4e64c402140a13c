"""The embedded kubelet behind a scenario: each start is a new object, which knows only what the checkpoint says."""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

from devherd_sim.kubelet import checkpoint
from devherd_sim.kubelet.checkpoint import read
from devherd_sim.kubelet.clients import NEWEST, Release
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.pod import AdmissionError, Container, ContainerSpec, Pod, StartError


class EmbeddedNode:
    """The Kubelet of scenario.py on EmbeddedKubelet, whose loop runs in a thread beside."""

    def __init__(self, directory: Path, kubernetes: Release = NEWEST) -> None:
        self.directory = directory
        self.kubernetes = kubernetes
        self.plugins = directory / "device-plugins"
        self.registry = directory / "plugins_registry"
        self._options: dict[str, Any] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._kubelet: EmbeddedKubelet | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self):
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def start(self, policy, numa_nodes):
        self._options = {"topology_policy": policy, "numa_nodes": numa_nodes}
        self._start(sources_ready=True, running=[])

    def stop(self):
        self._do(self._kubelet.stop())

    def restart(self, *, sources_ready, running):
        self.stop()
        self._start(sources_ready=sources_ready, running=running)

    def admit(self, pod):
        try:
            self._do(self._kubelet.admit(_pod(pod)))
        except AdmissionError as refused:
            self._pods.pop(pod["uid"], None)
            return {"admitted": False, "reason": refused.reason, "message": refused.message, "containers": {}}
        self._pods[pod["uid"]] = pod
        return {"admitted": True, "reason": "", "message": "", "containers": self.run(pod)}

    def run(self, pod):
        return {spec.name: self._run(_pod(pod), spec.name) for spec in _pod(pod).in_order()}

    def free(self, uid):
        self._pods.pop(uid)
        self._do(self._later(lambda: self._kubelet.free(uid, uid=uid)))

    def capacity(self, resource):
        return self._do(self._later(lambda: self._capacity(resource)))

    def devices(self, resource):
        return self._do(self._later(lambda: self._devices(resource)))

    def grace_passes(self, resource):
        def forget():
            connections = self._kubelet._node.connections
            assert resource in connections._ends_of_grace
            connections._forget(resource)

        self._do(self._later(forget))

    def ended_streams(self):
        return self._do(self._later(lambda: len(self._kubelet.events.since(0, "stream-ended"))))

    def checkpoint(self):
        return seen_checkpoint(self.plugins)

    def _start(self, *, sources_ready, running):
        async def start():
            self._kubelet = EmbeddedKubelet(self.directory, kubernetes=self.kubernetes, **self._options)
            for uid, name in running:
                self._kubelet._node.pods.started(Container(uid, name, uid=uid))
            await self._kubelet.start(sources_ready=sources_ready)
            for (
                pod
            ) in self._pods.values():  # a kubelet hears of them from elsewhere; ours knows what the checkpoint says
                self._kubelet._node.pods.add(_pod(pod))

        self._do(start())

    def _run(self, pod, name):
        try:
            told = self._do(self._kubelet.start_container(pod=pod.name, container=name, uid=pod.uid))
        except StartError as error:
            return {"error": str(error)}
        held = self._kubelet._node.ledger.of(pod.container(name))
        ids = {allocation.resource: list(allocation.device_ids) for allocation in held}
        return {"error": "", "device_ids": ids, "cdi": sorted(told.pop("cdi_devices")), **told}

    def _capacity(self, resource):
        if resource not in self._kubelet.resources():
            return None
        return [self._kubelet.capacity(resource), self._kubelet.allocatable(resource)]

    def _devices(self, resource):
        told = self._kubelet.devices(resource)
        healthy = [name for name, health in told.items() if health == "Healthy"]
        return {name: self._kubelet.numa_nodes(resource, name) or None for name in healthy}

    async def _later(self, look):
        return look()

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


def seen_checkpoint(plugins: Path) -> dict[str, Any] | None:
    """A checkpoint in an order of its own, read by our code, whoever wrote it; None for none that is right."""
    content = read(plugins)
    known = None
    with contextlib.suppress(checkpoint.CheckpointError):
        known = checkpoint.decode(content) if content is not None else None
    if known is None:
        return None
    pods = [
        [
            held.container.uid,
            held.container.name,
            held.resource,
            {node: sorted(ids) for node, ids in held.by_numa_node.items()},
            held.response.SerializeToString(deterministic=True).hex(),
        ]
        for held in known.allocations
    ]
    registered = {resource: sorted(ids) for resource, ids in known.registered.items()}
    return {"pods": sorted(pods, key=repr), "registered": registered}


def _pod(words):
    init, apps = (tuple(map(_container, words[kind])) for kind in ("init_containers", "containers"))
    return Pod(words["name"], apps, init, words["namespace"], words["uid"])


def _container(words):
    return ContainerSpec(words["name"], words["limits"], words["sidecar"])
