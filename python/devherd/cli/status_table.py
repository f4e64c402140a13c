"""The running instance as tables for people: what it is, what is wrong with it, what it serves, what runs."""

import time
from collections.abc import Iterator
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from devherd import amounts
from devherd.cli import inventory_table
from devherd.cli.choice import Choice, only_noted
from devherd.cli.inventory_table import plain, table
from devherd.head import Head
from devherd.instance import RUNNING, Allocations, Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import listed, size_of


def parts(
    herd: Herd, allocations: Allocations | None, choice: Choice | None = None, *, worst_first: bool = False
) -> Iterator[RenderableType]:
    """Head, trouble, resources, the processes that serve none."""
    choice = choice or Choice()
    named = replace(choice, unhealthy=False).among(herd.resources)
    if worst_first:
        named = sorted(named, key=lambda resource: not is_in_trouble(herd, resource))
    noted = [noted for resource in named if (noted := only_noted(resource)).devices]
    names = {resource.name for resource in noted}
    resources = [resource for resource in named if resource.name in names] if choice.unhealthy else named
    if herd.head:
        yield from _head(herd.head, _http(herd))
        if herd.standby:
            waits = amounts.duration(time.time() - herd.standby.since)
            what = f"devherd {herd.standby.version} ({herd.standby.revision}) stands by to take over, up {waits}"
            yield Text(plain(what), "bold")
        yield ""
    if noted:
        yield _devices(herd, noted, allocations)
        yield "why: devherd explain RESOURCE DEVICE"
        yield ""
    complaints = [
        *inventory_table.absent(choice.absent(herd.resources)),
        *_about_registration(herd, named),
        *_about_the_configuration(herd),
        *_about_http(herd),
    ]
    if complaints:
        yield from complaints
        yield ""
    yield from _of_the_scan(herd.scan or spool_pb2.ScanSummary())
    if not herd.resources:
        yield "No device has been found: `devherd scan` says where it looked."
    elif resources:
        yield _resources(herd, resources, allocations)
    elif choice.unhealthy:
        yield "No device is unhealthy or has a warning."
    others = [child for name, child in sorted(herd.children.items()) if not name.startswith("resource:")]
    if others:
        yield ""
        yield _others(sorted(others, key=lambda child: worst_first and child.state == RUNNING))


def _of_the_scan(scan: spool_pb2.ScanSummary) -> Iterator[RenderableType]:
    if scan.problems:
        yield inventory_table.problems(scan.problems)
        yield ""
    yield from inventory_table.notes(scan.notices)
    if scan.notices:
        yield ""


def is_in_trouble(herd: Herd, resource: spool_pb2.Resource) -> bool:
    """Whether a device of it is unhealthy, or the kubelet does not have it."""
    return any(device.reasons for device in resource.devices) or not herd.registration(resource.name).registered


def has_problem(herd: Herd, resources: list[spool_pb2.Resource]) -> bool:
    """Whether any of these is in trouble, or what they all depend on."""
    return (
        any(is_in_trouble(herd, resource) for resource in resources)
        or any(child.state != RUNNING for child in herd.children.values())
        or bool(herd.configuration.refusal)
        or bool(herd.scan and herd.scan.problems)
        or any(each.refusal for each in herd.addresses())
    )


def _head(head: Head, http: str) -> Iterator[Text]:
    up = amounts.duration(time.time() - head.started)
    yield Text(plain(f"devherd {head.version} ({head.revision}), process {head.pid}, up {up}"), "bold")
    yield Text(plain(f"configuration {head.config or 'from options and environment'}; run directory {head.run_dir}"))
    yield Text(plain(f"kubelet {head.kubelet_dir}, registration {head.registration}; {http}"))


def _http(herd: Herd) -> str:
    if not (herd.head and herd.head.listen):
        return "no HTTP"
    refused = {each.address for each in herd.addresses() if each.refusal}
    addresses = (f"{each} (not serving)" if each in refused else each for each in herd.head.listen.split(","))
    return f"HTTP on {','.join(addresses)}"


def _devices(herd: Herd, noted: list[spool_pb2.Resource], allocations: Allocations | None) -> Table:
    """A row for each device, not for each replica."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "SINCE", "HELD BY", dispensable=("HELD BY", "SINCE"))
    for resource in noted:
        for device in resource.devices:
            since = herd.since(device)
            age = f"{amounts.duration(time.time() - since)} ago" if since else ""
            held = _holders(resource.name, device, allocations)
            name = inventory_table.device_name(device)
            made.add_row(resource.name, name, inventory_table.health(device), age, plain(held))
    return made


def _about_registration(herd: Herd, resources: list[spool_pb2.Resource]) -> Iterator[Text]:
    """Each reason once, with the resources that have it: when the kubelet is away, that is all of them."""
    for detail, names in herd.waiting(resources).items():
        whose = f"all {len(names)} resources" if len(names) == len(resources) > 1 else ", ".join(names)
        yield Text(plain(f"not registered: {whose}: {detail}"), "red")


def _about_the_configuration(herd: Herd) -> Iterator[Text]:
    if herd.configuration.refusal:
        yield Text(plain(f"configuration not reloaded, the old one stays: {herd.configuration.refusal}"), "red")
    for warning in herd.configuration.warnings:
        yield Text(plain(f"configuration: {warning}"), "yellow")


def _about_http(herd: Herd) -> Iterator[Text]:
    for address in herd.addresses():
        if address.refusal:
            yield Text(plain(address.complaint()), "red")


def _resources(herd: Herd, resources: list[spool_pb2.Resource], allocations: Allocations | None) -> Table:
    least = (*_DISPENSABLE, "ALLOCATED", "STATE")
    made = table("RESOURCE", "HEALTHY", "TOTAL", "ALLOCATED", "REGISTERED", *_OF_A_PROCESS, dispensable=least)
    for resource in resources:
        healthy, total = sum(not device.reasons for _, device in listed(resource)), size_of(resource)
        registration = herd.registration(resource.name)
        made.add_row(
            resource.name,
            Text(str(healthy), "green" if healthy == total else "red"),
            str(total),
            _allocated(resource, allocations),
            Text("yes", "green") if registration.registered else Text("no", "red"),
            *_process(herd.child_of(resource.name)),
        )
    return made


def _others(children: list[spool_pb2.Child]) -> Table:
    made = table("PROCESS", *_OF_A_PROCESS, dispensable=_DISPENSABLE)
    for child in children:
        made.add_row(child.name, *_process(child))
    return made


_OF_A_PROCESS = ("STATE", "UPTIME", "RESTARTS", "LAST EXIT")
_DISPENSABLE = ("UPTIME", "RESTARTS", "LAST EXIT")


def _process(child: spool_pb2.Child | None) -> tuple[RenderableType, ...]:
    """Its columns."""
    if child is None:
        return (Text("not started", "red"), "", "", "")
    pid = f" {child.pid}" if child.pid else ""
    is_running = child.state == RUNNING
    uptime = amounts.duration(time.time() - child.started_timestamp_seconds) if is_running else ""
    restarts = ", ".join(f"{count} by {cause}" for cause, count in sorted(child.restarts.items()) if count)
    return (
        Text(f"{child.state}{pid}", "green" if is_running else "red"),
        uptime,
        restarts or "0",
        plain(child.last_exit),
    )


def _allocated(resource: spool_pb2.Resource, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    return str(sum((resource.name, device_id) in allocations for device_id, _ in listed(resource)))


def _holders(resource_name: str, device: spool_pb2.Device, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    own = spool_pb2.Resource(devices=[device])
    held = {
        f"{holder['namespace']}/{holder['pod']}": None
        for device_id, _ in listed(own)
        for holder in allocations.get((resource_name, device_id), ())
    }
    return ", ".join(held)
