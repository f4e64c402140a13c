"""The embedded kubelet's answers as JSON, and its explanation when a resource does not come in time."""

import os
import time
from collections.abc import Iterator
from typing import Any

from devherd_sim.kubelet.connections import PluginEndpoint
from devherd_sim.kubelet.events import Kind, KubeletEvent
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.pod import Allocation


def status_report(kubelet: EmbeddedKubelet) -> dict[str, Any]:
    """The registered resources, the refused ones, the forgotten ones, and the pods' allocations."""
    there = kubelet.resources()
    absent = [(name, last) for name in known_resources(kubelet) if name not in there and (last := _last(kubelet, name))]
    return {
        "kubelet_dir": str(kubelet.paths.kubelet_dir),
        "kubernetes": kubelet.kubernetes,
        "running": kubelet.running,
        "resources": [resource_report(kubelet, name) for name in there],
        "refused": [
            {"name": name, "resource": name, "last_error": _error_json(last)}
            for name, last in absent
            if last.kind == "register-refused"
        ],
        "forgotten": [
            {"resource": name, "seconds_ago": _since(last.at), "last_error": _last_error(kubelet, name)}
            for name, last in absent
            if last.kind == "forgotten"
        ],
        "allocations": [held_report(allocation) for allocation in kubelet.allocations()],
    }


def resource_report(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any]:
    """Device counts of a resource, the plugin that the kubelet asks (None if it is gone), and every open stream."""
    plugin = connected(kubelet, name)
    return {
        "name": name,
        "resource": name,
        "capacity": kubelet.capacity(name),
        "allocatable": kubelet.allocatable(name),
        "in_use": len(kubelet.in_use(name)),
        "registrations": kubelet.registrations(name),
        "plugin": _plugin_report(plugin) if plugin else None,
        "streams": [_plugin_report(each) for each in kubelet.live_plugins(name)],
        "last_error": _last_error(kubelet, name),
    }


def _plugin_report(plugin: PluginEndpoint) -> dict[str, Any]:
    return {
        "socket": plugin.socket,
        "connected_seconds": _since(plugin.lists_seen.connected_at),
        "pre_start_required": plugin.options.pre_start_required,
        "get_preferred_allocation_available": plugin.options.get_preferred_allocation_available,
    }


def held_report(allocation: Allocation) -> dict[str, Any]:
    """An allocation as JSON."""
    return {
        "namespace": allocation.container.namespace,
        "pod": allocation.container.pod,
        "container": allocation.container.name,
        "resource": allocation.resource,
        "device_ids": list(allocation.device_ids),
    }


def device_reports(kubelet: EmbeddedKubelet, resource: str | None) -> Iterator[dict[str, Any]]:
    """Each device of a resource, or of all, with its health, its NUMA nodes and its pod."""
    holders = {
        (held.resource, device_id): held.container.pod
        for held in kubelet.allocations()
        for device_id in held.device_ids
    }
    for name in kubelet.resources():
        for device_id, health in kubelet.devices(name).items() if resource in (None, name) else ():
            yield {
                "resource": name,
                "id": device_id,
                "health": health,
                "numa_nodes": kubelet.numa_nodes(name, device_id) or None,
                "pod": holders.get((name, device_id)),
            }


def known_resources(kubelet: EmbeddedKubelet) -> list[str]:
    """All resources that are registered or for which Register was called, even if it was refused; sorted."""
    called = {event.resource for event in kubelet.events.since(0, "register-called")}
    found = {event.resource for event in kubelet.events.since(0, "registered")}
    return sorted(called.union(found, kubelet.resources()))


def connected(kubelet: EmbeddedKubelet, resource: str) -> PluginEndpoint | None:
    """The resource's connected plugin; None if it has never come or is gone."""
    plugin = kubelet.plugin(resource) if kubelet.running else None
    return plugin if plugin is not None and plugin.stopped_at is None else None


def why_not(kubelet: EmbeddedKubelet, name: str) -> tuple[str, str]:
    """Why a resource is not in the awaited state, and the remedy."""
    if not kubelet.running:
        return "the kubelet is stopped", "start it with `devherd sim kubelet start`"
    if name not in known_resources(kubelet):
        others = ", ".join(known_resources(kubelet)) or "no plugin at all"
        return f"its plugin has not called Register; called so far: {others}", "look at the plugin's own log"
    return state(kubelet, name), "see `devherd sim kubelet events`"


def state(kubelet: EmbeddedKubelet, name: str) -> str:
    """The state of a resource's plugin at the running kubelet, in words."""
    if (waits := _unanswered(kubelet, name)) is not None:
        return waits
    plugin = connected(kubelet, name)
    if plugin is None:
        return _absence(kubelet, name)
    if plugin not in kubelet.live_plugins(name):
        return (
            f"ListAndWatch of {plugin.socket} has ended, and the kubelet has not noticed it; {_counts(kubelet, name)}"
        )
    if plugin.lists_seen.first_after is None:
        return f"registered {_ago(plugin.lists_seen.connected_at)}, no list yet"
    return _counts(kubelet, name)


def _counts(kubelet: EmbeddedKubelet, name: str) -> str:
    return f"{kubelet.allocatable(name)} of {kubelet.capacity(name)} devices are allocatable"


def _absence(kubelet: EmbeddedKubelet, name: str) -> str:
    """Why a resource has no connected plugin."""
    last = _last(kubelet, name)
    if last is None:
        started = kubelet.events.since(0, "started")[-1]
        return f"not registered since the kubelet's start {_ago(started.at)}"
    if last.kind == "register-refused":
        return f"its registration was refused: {refusal(**last.detail)}"
    if last.kind == "register-abandoned":
        return f"the call of Register ended {_ago(last.at)}, before the kubelet had answered"
    ended = [event.detail["error"] for event in _since_start(kubelet, name) if event.kind == "stream-ended"]
    if last.kind == "forgotten":
        before = f"its stream had ended: {ended[-1]}" if ended else "no plugin had registered since the kubelet's start"
        return f"forgotten {_ago(last.at)}, at the end of the grace period; {before}"
    why = f": {ended[-1]}" if ended else ""
    return f"not connected since {_ago(last.at).removesuffix(' ago')}{why}; {_counts(kubelet, name)}"


def _unanswered(kubelet: EmbeddedKubelet, name: str) -> str | None:
    called_at = kubelet.unanswered_since(name)
    plugin = kubelet.connecting(name)
    if called_at is None and plugin is None:
        return None
    if called_at is not None:
        begun = f"Register called {_ago(called_at)}, the kubelet"
    else:
        assert plugin is not None
        begun = f"found {_ago(plugin.called_at)} in plugins_registry, the kubelet"
    if plugin is None:
        return f"{begun} does not answer yet: `devherd sim kubelet refuse` or `delay` was given"
    if plugin.is_dialled:
        return f"{begun} is still waiting for its options"
    return f"{begun} is still dialling {plugin.socket}{_absent(os.path.lexists(plugin.socket))}"


def refusal(error: str, socket: str, *, socket_exists: bool, **_: Any) -> str:
    """The kubelet's message for a refused Register, with the dialled socket and whether it exists."""
    return f"{error}; it dialled {socket}{_absent(socket_exists)}" if error.startswith("failed to dial") else error


def _absent(exists: bool) -> str:
    return "" if exists else ", where nothing is"


_OUTCOMES: tuple[Kind, ...] = ("registered", "register-refused", "register-abandoned", "disconnected", "forgotten")


def _last(kubelet: EmbeddedKubelet, name: str) -> KubeletEvent | None:
    """The last event of a resource since the kubelet's start that is an outcome; None without one."""
    mine = [event for event in _since_start(kubelet, name) if event.kind in _OUTCOMES]
    return mine[-1] if mine else None


def _since_start(kubelet: EmbeddedKubelet, name: str) -> list[KubeletEvent]:
    """The events of a resource since the kubelet's last start."""
    events = kubelet.events.since()
    start = max((number for number, event in enumerate(events) if event.kind == "started"), default=0)
    return [event for event in events[start:] if event.resource == name]


def _last_error(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any] | None:
    errors = [
        event for event in kubelet.events.since(resource=name) if event.kind in {"register-refused", "stream-ended"}
    ]
    return _error_json(errors[-1]) if errors else None


def _error_json(event: KubeletEvent) -> dict[str, Any]:
    text = refusal(**event.detail) if event.kind == "register-refused" else event.detail["error"]
    return {"error": text, "seconds_ago": _since(event.at)}


def _since(at: float) -> float:
    return round(time.monotonic() - at, 3)


def _ago(at: float) -> str:
    return f"{time.monotonic() - at:.0f} s ago"
