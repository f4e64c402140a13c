"""The tables of `devherd sim kubelet`'s answers."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from devherd.cli.tables import plain, table


def status_table(answer: dict[str, Any]) -> RenderableType:
    """The resources, and the devices that each container holds."""
    parts: list[RenderableType] = [_resources(answer["resources"])]
    if not answer["resources"]:
        yet = "" if answer["forgotten"] else " yet"
        there = "has sent a list of devices" if not answer["forgotten"] else "is registered"
        parts = [Text(f"no plugin {there} at {answer['kubelet_dir']}/device-plugins{yet}")]
    if not answer["running"]:
        parts.insert(0, Text("the kubelet is stopped; `devherd sim kubelet start` starts it"))
    parts += [Text(f"{each['resource']}: refused: {_error(each['last_error'])}") for each in answer["refused"]]
    for each in answer["forgotten"]:
        error = f": {_error(each['last_error'])}" if each["last_error"] else ""
        parts.append(Text(f"{each['resource']}: forgotten {_age(each['seconds_ago'])} ago{error}"))
    if answer["allocations"]:
        parts += [Text(), _allocations(answer["allocations"])]
    parts.append(Text(f"by the rules of Kubernetes {answer['kubernetes']}"))
    return Group(*parts)


def _resources(answer: list[dict[str, Any]]) -> Table:
    numbers = ("allocatable", "capacity", "in_use", "registrations")
    made = table(
        "RESOURCE", "ALLOCATABLE", "CAPACITY", "IN USE", "REGISTRATIONS", "AGE", "SOCKET", "OPTIONS", "LAST ERROR"
    )
    for resource in answer:
        plugin = resource["plugin"]
        error = resource["last_error"]
        counts = (str(resource[number]) for number in numbers)
        about = _stream(plugin) if plugin else ("-",) * 3
        made.add_row(resource["resource"], *counts, *about, plain(_error(error)) if error else "-")
        asked = plugin and (plugin["socket"], plugin["connected_seconds"])
        for stream in resource["streams"]:
            if (stream["socket"], stream["connected_seconds"]) != asked:
                made.add_row("", *("" for _ in numbers), *_stream(stream), "one more stream is open")
    return made


def _stream(plugin: dict[str, Any]) -> tuple[Any, ...]:
    return _age(plugin["connected_seconds"]), plain(plugin["socket"]), _options(plugin)


def _options(plugin: dict[str, Any]) -> str:
    words = {"pre_start_required": "pre-start", "get_preferred_allocation_available": "preferred"}
    return ",".join(word for option, word in words.items() if plugin[option]) or "-"


def _age(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def _error(error: dict[str, Any]) -> str:
    return f"{error['error']} ({_age(error['seconds_ago'])} ago)"


def device_table(answer: list[dict[str, Any]]) -> Table:
    """A table with a row for each device."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "NUMA", "POD")
    for device in answer:
        nodes = ",".join(map(str, device["numa_nodes"] or ())) or "-"
        made.add_row(device["resource"], plain(device["id"]), device["health"], nodes, device["pod"] or "-")
    return made


def allocation_table(answer: dict[str, Any]) -> Table:
    """A table with a row for each thing that a container gets."""
    made = table("GETS", "ON THE HOST", "IN THE CONTAINER", "HOW")
    for device_id in answer["device_ids"]:
        made.add_row("device id", plain(device_id), "", "")
    for node in answer["devices"]:
        made.add_row("node", node["host_path"], node["container_path"], node["permissions"])
    for mount in answer["mounts"]:
        made.add_row("mount", mount["host_path"], mount["container_path"], "ro" if mount["read_only"] else "rw")
    for kind in ("envs", "annotations"):
        for name, value in answer[kind].items():
            made.add_row(kind.removesuffix("s"), "", plain(f"{name}={value}"), "")
    for name in answer["cdi_devices"]:
        made.add_row("CDI device", plain(name), "", "")
    return made


def pod_table(answer: list[dict[str, Any]]) -> RenderableType:
    """A table for each container, with what it gets."""
    return Group(
        *(part for each in answer for part in (Text(f"container {each['container']}"), allocation_table(each)))
    )


def _allocations(answer: list[dict[str, Any]]) -> Table:
    made = table("POD", "CONTAINER", "RESOURCE", "DEVICES")
    for held in answer:
        made.add_row(held["pod"], held["container"], held["resource"], plain(" ".join(held["device_ids"])))
    return made
