"""What the embedded kubelet says of itself, for commands and programs."""

import time
from typing import Any

from devherd_sim.kubelet.allocation import Allocation
from devherd_sim.kubelet.events import Event
from devherd_sim.kubelet.manager import EmbeddedKubelet

_ERRORS = ("register-refused", "stream-ended")


def status(kubelet: EmbeddedKubelet) -> dict[str, Any]:
    """Resources, which pod holds what, and whose registration was refused."""
    there = kubelet.resources()
    refused = {name: _last_error(kubelet, name) for name in known(kubelet) if name not in there}
    return {
        "kubelet_dir": str(kubelet.paths.kubelet_dir),
        "resources": [resource(kubelet, name) for name in there],
        "refused": [{"name": name, "last_error": error} for name, error in refused.items() if error],
        "allocations": [held(allocation) for allocation in kubelet.allocations()],
    }


def resource(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any]:
    """Numbers of a resource, and its plugin: null where none is connected."""
    plugin = kubelet.plugin(name)
    is_connected = plugin is not None and plugin.stopped_at is None
    return {
        "name": name,
        "capacity": kubelet.capacity(name),
        "allocatable": kubelet.allocatable(name),
        "in_use": len(kubelet.in_use(name)),
        "registrations": kubelet.registrations(name),
        "plugin": {
            "socket": plugin.socket,
            "connected_seconds": round(time.monotonic() - plugin.lists_seen.connected_at, 3),
            "pre_start_required": plugin.options.pre_start_required,
            "get_preferred_allocation_available": plugin.options.get_preferred_allocation_available,
        }
        if plugin is not None and is_connected
        else None,
        "last_error": _last_error(kubelet, name),
    }


def held(allocation: Allocation) -> dict[str, Any]:
    """Who holds what."""
    return {
        "namespace": allocation.container.namespace,
        "pod": allocation.container.pod,
        "container": allocation.container.name,
        "resource": allocation.resource,
        "device_ids": list(allocation.device_ids),
    }


def known(kubelet: EmbeddedKubelet) -> list[str]:
    """Every resource that is registered, or whose plugin has called Register, also in vain."""
    called = {event.resource for event in kubelet.events.since(0, "register-called")}
    return sorted(called.union(kubelet.resources()))


def not_there(kubelet: EmbeddedKubelet, name: str, allocatable: int | None, seconds: float) -> tuple[str, str, str]:
    """What, why and what to do when a resource did not come in time."""
    wanted = "" if allocatable is None else f" with {allocatable} allocatable devices"
    what = f"{name} is not there{wanted} after {seconds:g} s"
    error = _last_error(kubelet, name)
    if name in kubelet.resources():
        why = f"{kubelet.allocatable(name)} of {kubelet.capacity(name)} devices are allocatable"
        return what, f"{why}; last error: {error['error']}" if error else why, "see `devherd sim kubelet devices`"
    if error:
        return what, f"its registration was refused: {error['error']}", "see `devherd sim kubelet events`"
    others = ", ".join(known(kubelet)) or "no plugin at all"
    return what, f"its plugin has not called Register; called so far: {others}", "look at the plugin's own log"


def _last_error(kubelet: EmbeddedKubelet, name: str) -> dict[str, Any] | None:
    errors = [event for event in kubelet.events.since(resource=name) if event.kind in _ERRORS]
    return _told(errors[-1]) if errors else None


def _told(event: Event) -> dict[str, Any]:
    return {"error": event.detail["error"], "seconds_ago": round(time.monotonic() - event.at, 3)}
