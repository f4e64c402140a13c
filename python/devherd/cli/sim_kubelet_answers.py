"""The JSON of `devherd sim kubelet ACTION --output json`, which the fixture for pytest returns, too: its keys.

tests/sim_commands compares the keys with real answers, tests/sim those of events.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

ANSWERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "status": {
            "kubelet_dir": "the directory",
            "kubernetes": "the release whose registration rules apply",
            "running": "false after `stop`, and during a `restart`",
            "resources": "the node's resources, each as `wait` prints it",
            "refused": "resources whose Register was refused",
            "refused[].resource": "its name, twice",
            "refused[].name": "",
            "refused[].last_error": "as in `wait`",
            "forgotten": "resources removed after the grace period",
            "forgotten[].resource": "its name",
            "forgotten[].seconds_ago": "when",
            "forgotten[].last_error": "as in `wait`",
            "allocations": "devices held by containers, as `free` prints them",
        },
        "wait": {
            "resource": "the resource, twice",
            "name": "",
            "capacity": "its devices, Healthy or not",
            "allocatable": "those that are Healthy, while a plugin is connected",
            "in_use": "those that containers hold",
            "registrations": "calls of Register since the kubelet's start",
            "plugin": "the plugin that the kubelet uses; null: it is gone",
            "plugin.socket": "the path of its socket",
            "plugin.connected_seconds": "how long it has been connected",
            "plugin.pre_start_required": "its options",
            "plugin.get_preferred_allocation_available": "",
            "streams": "every plugin whose ListAndWatch is open, oldest first, with the keys of `plugin`",
            "last_error": "the last refusal or end of a stream; null: none",
            "last_error.error": "the kubelet's message",
            "last_error.seconds_ago": "when",
        },
        "check": {
            "[].resource": "the plugin's resource",
            "[].check": "the finding's name",
            "[].problem": "the error",
            "[].cure": "what to do",
        },
        "devices": {
            "[].resource": "the resource",
            "[].id": "the device",
            "[].health": "`Healthy` or `Unhealthy`",
            "[].numa_nodes": "a list of numbers; null: not given",
            "[].pod": "the pod that holds it; null: none",
        },
        "allocate": {
            "namespace": "the container's",
            "pod": "",
            "container": "",
            "resource": "the resource",
            "device_ids": "the devices",
            "devices": "nodes of the answer",
            "devices[].host_path": "",
            "devices[].container_path": "",
            "devices[].permissions": "",
            "mounts": "mounts of the answer",
            "mounts[].host_path": "",
            "mounts[].container_path": "",
            "mounts[].read_only": "",
            "envs": "variables, by name",
            "annotations": "annotations, by name",
            "cdi_devices": "names",
        },
        "admit": {
            "[].container": "each container in the order of its start; then as `allocate`, from `device_ids` on",
        },
        "free": {
            "[].namespace": "the container's",
            "[].pod": "",
            "[].container": "",
            "[].resource": "the resource",
            "[].device_ids": "the devices that it held",
        },
    }
)
"""By action: each key with its meaning; one without belongs to the key before it. `[]`: each object of a list."""

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "started": ("the kubelet accepts registrations; `removed`: the sockets that it has removed", ("removed",)),
        "stopped": ("the kubelet has stopped", ()),
        "register-called": ("a plugin has called Register; another event has the outcome", ("endpoint",)),
        "registered": ("a plugin is registered", ("endpoint",)),
        "register-refused": (
            "Register was refused; `socket`: the path that `endpoint` makes; `socket_exists`: if something is there",
            ("error", "endpoint", "socket", "socket_exists"),
        ),
        "register-abandoned": ("the call of Register ended before the answer, by plugin or kubelet", ("endpoint",)),
        "list": ("a list of devices has arrived, with these numbers", ("healthy", "unhealthy")),
        "doubtful": ("a problem that a kubelet does not report; `check`: the finding's name", ("problem", "check")),
        "stream-ended": ("ListAndWatch has ended", ("error", "socket")),
        "disconnected": ("the kubelet has dropped the plugin: nothing is allocatable", ()),
        "forgotten": ("no plugin has registered within the grace period: the resource is removed", ()),
        "checkpoint-ignored": ("the checkpoint is invalid, at the start", ("error",)),
        "checkpoint-failed": ("the checkpoint could not be written", ("error",)),
        "plugin-found": ("a socket below plugins_registry", ("socket",)),
        "plugin-refused": ("a plugin of plugins_registry was refused", ("socket", "error")),
        "plugin-gone": ("a socket below plugins_registry was removed or replaced", ("socket",)),
        "health": ("a DRA driver has sent the health of its devices; so many are known", ("devices",)),
        "health-forgotten": ("a DRA driver's stream of health has ended: that of all its devices is unknown", ()),
        "allocated": ("a container has devices", ("namespace", "pod", "container", "devices")),
        "allocation-refused": ("a container is rejected", ("namespace", "pod", "container", "error")),
        "pre-started": ("PreStartContainer was answered", ("namespace", "pod", "container")),
        "freed": ("a pod has ended", ("namespace", "pod")),
    }
)
"""Of an event: its meaning, and the keys that it has beside `time` (UTC), `kind` and `resource`, which may be empty."""


def described(action: str) -> str:
    """For the help of an action: its keys; empty if it prints no JSON."""
    if action == "events":
        rows = [
            (f"{kind}{':' * bool(keys)} {', '.join(keys)}".strip(), meaning) for kind, (meaning, keys) in KINDS.items()
        ]
        return _listed("with --output json each line has time, kind, resource, and by kind:", rows)
    if action not in ANSWERS:
        return ""
    return _listed("with --output json ([] is each object of a list):", list(_together(ANSWERS[action])))


def _together(keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    meaning = ""
    for name, means in keys.items():
        if means and names:
            yield ", ".join(names), meaning
            names = []
        names.append(name)
        meaning = means or meaning
    yield ", ".join(names), meaning


def _listed(head: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([head, *(f"  {names}\n      {meaning}" for names, meaning in rows)]) + "\n"
