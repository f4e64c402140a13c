"""Scenarios: steps on a node and what can be seen of them. One list, whatever kubelet is behind it.

A file in scenarios/ is a list of scenarios: `name`, `node` (policy, numa_nodes), `kubernetes` where it holds for one
set of rules alone, and `steps`. A step is one verb with its words, and `gives`, what it must bring. A plugin is called
by its resource, or as the step that begins it says. `play` returns all that was seen, to be compared between kubelets.
"""

import re
import time
from pathlib import Path
from typing import Any, Protocol

import yaml
from scenario_plugin import ScenarioPlugin
from seen_pod_resources import seen_pod_resources

WITHIN_SECONDS = 20.0
UNSEEN_SECONDS = 0.1
"""How long a kubelet may take to act on the end of a stream that it has noticed, which may change nothing."""
_ALL = yaml.CSafeLoader


class Kubelet(Protocol):
    """What a scenario needs of a kubelet. Pods and containers are plain data, as tests/kubelet has them."""

    plugins: Path
    registry: Path

    def start(self, policy: str, numa_nodes: int) -> None:
        """Run on the directory, which may have been left by another."""

    def stop(self) -> None:
        """Be killed."""

    def restart(self, *, sources_ready: bool, running: list[list[str]]) -> None:
        """Be killed, and start; the runtime has these containers, as [pod's UID, name], running."""

    def admit(self, pod: dict[str, Any]) -> dict[str, Any]:
        """`admitted`, `reason`, `message`, and `containers` by name: what each gets, or its `error`."""

    def run(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Start the containers of a pod again: containers by name."""

    def free(self, uid: str) -> None:
        """A pod is over."""

    def capacity(self, resource: str) -> list[int] | None:
        """Capacity and allocatable; None for a resource that is not known."""

    def devices(self, resource: str) -> dict[str, list[int] | None]:
        """The healthy devices and their NUMA nodes."""

    def ended_streams(self) -> int:
        """How many ListAndWatch streams have ended since the start of the first kubelet here."""

    def grace_passes(self, resource: str) -> None:
        """Let the grace period of a resource without a plugin end now."""

    def checkpoint(self) -> dict[str, Any] | None:
        """`pods`, sorted, and `registered`; None when there is no file."""


def scenarios(directory: Path, kubernetes: str) -> list[dict[str, Any]]:
    """Every scenario of every file that holds by the rules of a release."""
    files = sorted(directory.glob("*.yaml"))
    every = [each for path in files for each in yaml.load(path.read_text(), _ALL)]
    return [each for each in every if each.get("kubernetes", kubernetes) == kubernetes]


class Player:
    """Plays one scenario on one kubelet."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self._plugins: dict[str, ScenarioPlugin] = {}
        self._stopped: list[ScenarioPlugin] = []

    def play(self, scenario: dict[str, Any]) -> list[Any]:
        """What was seen, step by step. Raises AssertionError when a step does not bring what it should."""
        node = {"policy": "none", "numa_nodes": 1} | scenario.get("node", {})
        self._kubelet.start(**node)
        try:
            return [self._step(number, dict(step)) for number, step in enumerate(scenario["steps"], 1)]
        finally:
            for plugin in self._plugins.values():
                plugin.stop()
            self._kubelet.stop()

    def _step(self, number: int, step: dict[str, Any]) -> Any:
        wanted = step.pop("gives", None)
        ((verb, words),) = step.items()
        seen = getattr(self, f"_{verb}")(words)
        if wanted is not None:
            assert _part(seen, wanted) == wanted, f"step {number}, {verb} {words}"
        calls = {name: plugin.taken_calls() for name, plugin in self._plugins.items()}
        resources = {plugin.resource for plugin in self._plugins.values()}
        capacities = {resource: self._kubelet.capacity(resource) for resource in resources}
        return [verb, seen, capacities, calls, self._pod_resources(None)]

    def _plugin(self, words: dict[str, Any]) -> str:
        """Serve and register; the refusal."""
        name, plugin = _named(words)
        plugin.serve(self._kubelet.plugins)
        return self._begun(name, plugin, self._registered(plugin))

    def _register_again(self, name: str) -> str:
        """Call Register for the socket that is served already; the refusal. Without one, a further stream is open."""
        plugin = self._plugins[name]
        before = plugin.streams
        refusal = self._registered(plugin)
        if not refusal:
            _eventually(lambda: plugin.streams > before, f"{name} has a further stream")
        return refusal

    def _registered(self, plugin: ScenarioPlugin) -> str:
        return plugin.register(self._kubelet.plugins).replace(str(self._kubelet.plugins), "PLUGINS")

    def _found_plugin(self, words: dict[str, Any]) -> dict[str, Any]:
        """Wait in plugins_registry to be found; the kubelet's first report to the plugin."""
        name, plugin = _named(words)
        plugin.serve(self._kubelet.registry)
        told = _eventually(lambda: plugin.told[:1], f"{plugin.resource} is told")[0]
        self._begun(name, plugin, told["error"])
        return {**told, "error": told["error"].replace(str(self._kubelet.registry / plugin.endpoint), "SOCKET")}

    def _begun(self, name: str, plugin: ScenarioPlugin, refusal: str) -> str:
        if refusal:
            plugin.stop()
            return refusal
        if name in self._plugins:
            self._plugins[name].stop()
        self._plugins[name] = plugin
        if not plugin.knobs.get("silent"):
            self.settle(plugin)
        return ""

    def _list(self, words: dict[str, Any]) -> None:
        """A plugin sends another list; `forgotten`: the kubelet takes it, and forgets the resource at its next look."""
        plugin = self._plugins[words["resource"]]
        file = self._kubelet.plugins / "kubelet_internal_checkpoint"
        before = file.stat()
        plugin.send(words["devices"])
        _eventually(lambda: file.stat().st_mtime_ns != before.st_mtime_ns, "the list is in the checkpoint")
        if words.get("forgotten"):
            _eventually(lambda: self._kubelet.capacity(plugin.resource) is None, f"{plugin.resource} is forgotten")
        else:
            self.settle(plugin)

    def _change(self, words: dict[str, Any]) -> None:
        """A plugin behaves otherwise from now on; its options stay as they were."""
        knobs = {name: value for name, value in words.items() if name != "resource"}
        self._plugins[words["resource"]].knobs.update(knobs)

    def _stop_plugin(self, resource: str) -> None:
        self._plugins[resource].stop()
        _eventually(lambda: (self._kubelet.capacity(resource) or [0, 0])[1] == 0, f"{resource} is let go")

    def _end(self, words: dict[str, Any]) -> None:
        """A plugin ends, and the kubelet is left with these numbers."""
        plugin = self._plugins[words["plugin"]]
        self._after(plugin.stop, plugin.resource, words["leaves"])

    def _remove_socket(self, words: dict[str, Any]) -> None:
        """The file of a plugin that was found goes, and the kubelet is left with these numbers."""
        plugin = self._plugins[words["plugin"]]
        self._after((self._kubelet.registry / plugin.endpoint).unlink, plugin.resource, words["leaves"])

    def _after(self, end: Any, resource: str, numbers: list[int]) -> None:
        before = self._kubelet.ended_streams()
        end()
        _eventually(lambda: self._kubelet.ended_streams() > before, f"a stream of {resource} ends")
        time.sleep(UNSEEN_SECONDS)
        _eventually(lambda: self._kubelet.capacity(resource) == numbers, f"{resource} has {numbers}")

    def _grace_passes(self, resource: str) -> None:
        self._kubelet.grace_passes(resource)

    def _admit(self, words: dict[str, Any]) -> dict[str, Any]:
        seen = self._kubelet.admit(pod(words))
        seen["message"] = _UNAVAILABLE.sub(r"\1: ...", seen["message"])
        return seen | {"containers": _tidied(seen["containers"])}

    def _run(self, words: dict[str, Any]) -> dict[str, Any]:
        return _tidied(self._kubelet.run(pod(words)))

    def _free(self, uid: str) -> None:
        self._kubelet.free(uid)

    def _devices(self, resource: str) -> dict[str, list[int] | None]:
        return self._kubelet.devices(resource)

    def _checkpoint(self, _: None) -> dict[str, Any] | None:
        return self._kubelet.checkpoint()

    def _pod_resources(self, _: None) -> dict[str, Any]:
        return seen_pod_resources(self._kubelet.plugins.parent / "pod-resources" / "kubelet.sock")

    def _restart(self, words: dict[str, Any] | None) -> None:
        """The kubelet is killed and starts; plugins that called Register end, those that wait are found again."""
        for name, plugin in list(self._plugins.items()):
            if not (self._kubelet.registry / plugin.endpoint).exists():
                plugin.stop()
                self._stopped.append(self._plugins.pop(name))
        self._kubelet.restart(**({"sources_ready": True, "running": []} | (words or {})))
        for plugin in self._plugins.values():
            self.settle(plugin)

    def _spoil(self, content: str) -> None:
        """Something else is in the checkpoint's place."""
        (self._kubelet.plugins / "kubelet_internal_checkpoint").write_text(content)

    def settle(self, plugin: ScenarioPlugin) -> None:
        """Until the kubelet has taken the last list, and has written its checkpoint of it."""
        healthy = sorted(name for name, told in plugin.devices.items() if told.get("health", "Healthy") == "Healthy")
        numbers = [len(plugin.devices), len(healthy)]

        def settled() -> bool:
            known = self._kubelet.checkpoint()
            told = known and known["registered"].get(plugin.resource)
            return self._kubelet.capacity(plugin.resource) == numbers and told == healthy

        _eventually(settled, f"{plugin.resource} has {numbers}")


_UNAVAILABLE = re.compile(r"(code = Unavailable) desc = .*")
"""What follows is in the words of gRPC-Go or of gRPC-Python."""


def _named(words: dict[str, Any]) -> tuple[str, ScenarioPlugin]:
    plugin = ScenarioPlugin(**{word: value for word, value in words.items() if word != "as"})
    return words.get("as", plugin.resource), plugin


def pod(words: dict[str, Any]) -> dict[str, Any]:
    """A pod as tests/kubelet has them, from a scenario's short form: `limits` alone are those of `main`."""
    if "limits" in words:
        words = {"uid": words["uid"], "containers": {"main": words["limits"]}, "init": words.get("init", {})}
    return {
        "uid": words["uid"],
        "name": words["uid"],
        "namespace": "default",
        "init_containers": [_container(name, told) for name, told in words.get("init", {}).items()],
        "containers": [_container(name, limits) for name, limits in words["containers"].items()],
    }


def _container(name: str, told: dict[str, Any]) -> dict[str, Any]:
    limits = {resource: count for resource, count in told.items() if resource != "sidecar"}
    return {"name": name, "limits": limits, "sidecar": told.get("sidecar", False)}


def _tidied(containers: dict[str, Any]) -> dict[str, Any]:
    """The answers of several resources come in any order."""
    return {
        name: {key: sorted(value, key=str) if isinstance(value, list) else value for key, value in told.items()}
        for name, told in sorted(containers.items())
    }


def _part(seen: Any, wanted: Any) -> Any:
    """What was seen, as far as something was wanted of it."""
    if isinstance(seen, dict) and isinstance(wanted, dict):
        return {key: _part(seen.get(key), value) for key, value in wanted.items()}
    return seen


def _eventually(look: Any, what: str) -> Any:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {WITHIN_SECONDS} s: {what}"
        time.sleep(0.01)
    return seen
