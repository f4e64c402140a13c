"""What the embedded kubelet answers, as tables for people."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from devherd.cli.inventory_table import plain, table


def status(answer: dict[str, Any]) -> RenderableType:
    """Resources, and which pod holds what."""
    parts: list[RenderableType] = [_resources(answer["resources"])]
    if not answer["resources"]:
        parts = [Text(f"no plugin has sent a list of devices to {answer['kubelet_dir']}/device-plugins yet")]
    parts += [Text(f"{each['name']}: refused: {_error(each['last_error'])}") for each in answer["refused"]]
    if answer["allocations"]:
        parts += [Text(), _allocations(answer["allocations"])]
    return Group(*parts)


def _resources(answer: list[dict[str, Any]]) -> Table:
    numbers = ("allocatable", "capacity", "in_use", "registrations")
    made = table(
        "RESOURCE", "ALLOCATABLE", "CAPACITY", "IN USE", "REGISTRATIONS", "AGE", "SOCKET", "OPTIONS", "LAST ERROR"
    )
    for resource in answer:
        plugin = resource["plugin"]
        about = (_age(plugin["connected_seconds"]), plain(plugin["socket"]), _options(plugin)) if plugin else ("-",) * 3
        error = resource["last_error"]
        told = (str(resource[number]) for number in numbers)
        made.add_row(resource["name"], *told, *about, plain(_error(error)) if error else "-")
    return made


def _options(plugin: dict[str, Any]) -> str:
    words = {"pre_start_required": "pre-start", "get_preferred_allocation_available": "preferred"}
    return ",".join(word for option, word in words.items() if plugin[option]) or "-"


def _age(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def _error(error: dict[str, Any]) -> str:
    return f"{error['error']} ({_age(error['seconds_ago'])} ago)"


def devices(answer: list[dict[str, Any]]) -> Table:
    """A row for each device."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "NUMA", "POD")
    for device in answer:
        nodes = ",".join(map(str, device["numa_nodes"] or ())) or "-"
        made.add_row(device["resource"], plain(device["id"]), device["health"], nodes, device["pod"] or "-")
    return made


def allocation(answer: dict[str, Any]) -> Table:
    """What a container gets, line by line."""
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


def pod(answer: list[dict[str, Any]]) -> RenderableType:
    """What each container gets, one table below the other."""
    return Group(*(part for each in answer for part in (Text(f"container {each['container']}"), allocation(each))))


def _allocations(answer: list[dict[str, Any]]) -> Table:
    made = table("POD", "CONTAINER", "RESOURCE", "DEVICES")
    for held in answer:
        made.add_row(held["pod"], held["container"], held["resource"], plain(" ".join(held["device_ids"])))
    return made
