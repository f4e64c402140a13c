"""The running instance as tables for people."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from devherd.cli import inventory_table
from devherd.cli.inventory_table import plain, table
from devherd.instance import RUNNING, Allocations, Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import listed, size_of


def parts(herd: Herd, allocations: Allocations | None) -> Iterator[RenderableType]:
    """Resources; devices that are unhealthy or warned of; what is wrong with configuration and scan; processes."""
    yield _resources(herd, allocations) if herd.resources else "No device has been found."
    noted = [_only_noted(resource) for resource in herd.resources]
    if any(resource.devices for resource in noted):
        yield ""
        yield inventory_table.devices(noted)
        yield "why: devherd explain RESOURCE DEVICE"
    complaints = list(_about_the_configuration(herd))
    if complaints:
        yield ""
        yield from complaints
    if herd.scan and herd.scan.problems:
        yield ""
        yield inventory_table.problems(herd.scan.problems)
    yield ""
    yield _children(herd)


def _about_the_configuration(herd: Herd) -> Iterator[Text]:
    if herd.configuration.refusal:
        yield Text(plain(f"configuration not reloaded, the old one stays: {herd.configuration.refusal}"), "red")
    for warning in herd.configuration.warnings:
        yield Text(plain(f"configuration: {warning}"), "yellow")


def _resources(herd: Herd, allocations: Allocations | None) -> Table:
    made = table("RESOURCE", "HEALTHY", "TOTAL", "ALLOCATED", "REGISTERED", "PROCESS")
    for resource in herd.resources:
        healthy, total = sum(not device.reasons for _, device in listed(resource)), size_of(resource)
        registration = herd.registration(resource.name)
        child = herd.child_of(resource.name)
        made.add_row(
            resource.name,
            Text(str(healthy), "green" if healthy == total else "red"),
            str(total),
            _allocated(resource, allocations),
            Text("yes", "green") if registration.registered else Text(plain(registration.detail), "red"),
            _state(child) if child else "",
        )
    return made


def _allocated(resource: spool_pb2.Resource, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    return str(sum((resource.name, device_id) in allocations for device_id, _ in listed(resource)))


def _only_noted(resource: spool_pb2.Resource) -> spool_pb2.Resource:
    noted = [device for device in resource.devices if device.reasons or device.warnings]
    return spool_pb2.Resource(name=resource.name, vendor=resource.vendor, devices=noted)


def _children(herd: Herd) -> Table:
    made = table("PROCESS", "STATE", "RESTARTS", "LAST EXIT")
    for name, child in sorted(herd.children.items()):
        restarts = ", ".join(f"{count} by {cause}" for cause, count in sorted(child.restarts.items()) if count)
        made.add_row(name, _state(child), restarts, plain(child.last_exit))
    return made


def _state(child: spool_pb2.Child) -> Text:
    pid = f" {child.pid}" if child.pid else ""
    return Text(f"{child.state}{pid}", "green" if child.state == RUNNING else "red")
