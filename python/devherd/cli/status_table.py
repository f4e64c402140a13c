"""The running instance as tables: its settings, its problems, its resources, its processes."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from devherd.cli import filters, tables
from devherd.cli.filters import Filters, only_noted
from devherd.cli.tables import plain, table
from devherd.instance.files import refusal_of
from devherd.instance.inventory_json import cordon_of, is_cordoned, is_ill, model_of, to_do
from devherd.instance.read import RUNNING, SUPERVISOR, InstanceState, is_by_dra
from devherd.inventory import Allocations
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import uncordon
from devherd.spool import listed, size_of
from devherd.text import amount, duration, first_lines, sharing_of, version_text

MOST_TO_DO = 5
"""Limit on the devices for which the table says what to do; `devherd explain` has all."""


def parts(
    herd: InstanceState, allocations: Allocations | None, choice: Filters | None = None, *, worst_first: bool = False
) -> Iterator[RenderableType]:
    """The head, the problems, the resources, and the processes that serve no resource."""
    choice = choice or Filters()
    named = replace(choice, unhealthy=False).among(herd.resources)
    if worst_first:
        named = sorted(named, key=lambda resource: not is_in_trouble(herd, resource))
    noted = [noted for resource in named if (noted := only_noted(resource)).devices]
    names = {resource.name for resource in noted}
    resources = [resource for resource in named if resource.name in names] if choice.unhealthy else named
    if herd.instance:
        yield from _head(
            herd.instance, "DRA" if herd.is_dra else f"registration {herd.instance.registration}", _http(herd)
        )
        if herd.standby:
            waits = duration(time.time() - herd.standby.since)
            which = version_text(herd.standby.version, herd.standby.revision)
            what = f"{which} stands by to take over, up {waits}"
            yield Text(plain(what), "bold")
        yield ""
    if noted:
        yield _devices(herd, noted, allocations)
        yield from _to_do(herd, noted)
        yield from _about_cordons(herd, noted)
        yield "why: devherd explain RESOURCE DEVICE"
        yield ""
    yield from _lost(herd, _lost_of(herd, choice))
    complaints = [
        *_about_the_supervisor(herd),
        *([Text(plain(lack), "red")] if (lack := herd.lack_of_room()) else []),
        *([Text(plain(second), "yellow")] if (second := herd.second_instance()) else []),
        *([Text(plain(overdue), "red")] if (overdue := herd.overdue_scan()) else []),
        *tables.absent_table(choice.absent(herd.resources)),
        *_about_registration(herd, named),
        *_about_the_configuration(herd),
        *_about_http(herd),
        *_about_sources(herd),
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
        yield f"{choice.none_fits()}."
    yield from _of_no_resource(herd, worst_first=worst_first)


def _of_no_resource(herd: InstanceState, *, worst_first: bool) -> Iterator[RenderableType]:
    """The DRA drivers, and the processes that serve no resource."""
    if herd.drivers:
        yield ""
        yield _drivers(herd)
    others = [child for name, child in sorted(herd.children.items()) if not name.startswith("resource:")]
    if others:
        yield ""
        yield _others(herd, sorted(others, key=lambda child: worst_first and child.state == RUNNING))


def devices(
    herd: InstanceState, allocations: Allocations | None, choice: Filters, *, worst_first: bool = False
) -> Iterator[RenderableType]:
    """Each device with its model, health and pods, by address; and the lost ones."""
    chosen = [
        spool_pb2.Offer(name=one.name, vendor=one.vendor, devices=sorted(one.devices, key=_address))
        for one in choice.among(herd.resources)
    ]
    if chosen:
        yield _every_device(herd, filters.worst_first(chosen) if worst_first else chosen, allocations)
    elif choice != Filters():
        yield f"{choice.none_fits()}."
    else:
        yield "No device has been found: `devherd scan` says where it looked."
    if lost := _lost_of(herd, choice):
        yield ""
        yield from list(_lost(herd, lost))[:-1]


def _address(device: spool_pb2.Device) -> str:
    return device.attributes.get("pci_address", "")


def _every_device(herd: InstanceState, chosen: list[spool_pb2.Offer], allocations: Allocations | None) -> Table:
    """A row for each device, by the shortest of its names that every command takes."""
    addresses = Counter(_address(device) for resource in herd.resources for device in resource.devices)
    droppable = ("ID", "SLOT", "RESOURCE", "MODEL")
    made = table("DEVICE", "RESOURCE", "MODEL", "SLOT", "ID", "HEALTH", "HELD BY", dispensable=droppable)
    for resource in chosen:
        for device in resource.devices:
            address = _address(device)
            sharing = sharing_of(device)
            made.add_row(
                (address if addresses[address] == 1 and address else plain(device.id))
                + f" ({sharing})" * bool(sharing),
                resource.name,
                plain(model_of(device.vendor or resource.vendor, device.attributes)),
                plain(herd.slot(device.attributes.get("slot", ""))),
                plain(device.id),
                tables.health(device),
                plain(_holders(resource.name, device, allocations) or "-"),
            )
    return made


def _lost_of(herd: InstanceState, choice: Filters) -> Sequence[health_pb2.LostDevice]:
    """The lost devices of the chosen resources; all of them without a choice."""
    names = {resource.name for resource in replace(choice, unhealthy=False).among(herd.resources)}
    return herd.lost if choice == Filters() else [device for device in herd.lost if device.resource_name in names]


def _of_the_scan(scan: spool_pb2.ScanSummary) -> Iterator[RenderableType]:
    if scan.problems:
        yield tables.problem_table(scan.problems)
        yield ""
    yield from tables.note_table(scan.notices)
    if scan.notices:
        yield ""


def is_in_trouble(herd: InstanceState, resource: spool_pb2.Offer) -> bool:
    """Whether a device of the resource is unhealthy, other than by a cordon, or the resource is not registered."""
    is_served = is_by_dra(resource) or herd.registration(resource.name).registered
    return any(map(is_ill, resource.devices)) or not is_served


def has_problem(herd: InstanceState, resources: list[spool_pb2.Offer]) -> bool:
    """Whether one of these resources, a process, the configuration, the scan, an address or a source has a problem."""
    names = {resource.name for resource in resources}
    is_about_all = len(resources) == len(herd.resources)
    return (
        any(is_in_trouble(herd, resource) for resource in resources)
        or any(herd.drivers_waiting())
        or any(is_about_all or device.resource_name in names for device in herd.lost)
        or any(child.state != RUNNING for child in herd.children.values())
        or bool(herd.silent)
        or bool(herd.overdue_scan())
        or herd.full_directory is not None
        or bool(herd.configuration.refusal)
        or bool(herd.scan and herd.scan.problems)
        or any(each.refusal for each in herd.addresses())
        or any(herd.source_troubles())
    )


def _head(instance: spool_pb2.Instance, registration: str, http: str) -> Iterator[Text]:
    up = duration(time.time() - instance.started)
    which = version_text(instance.version, instance.revision)
    yield Text(plain(f"{which}, process {instance.pid}, up {up}"), "bold")
    yield Text(
        plain(f"configuration {instance.config or 'from options and environment'}; run directory {instance.run_dir}")
    )
    yield Text(plain(f"kubelet {instance.kubelet_dir}, {registration}; {http}"))


def _http(herd: InstanceState) -> str:
    if not (herd.instance and herd.instance.listen):
        return "no HTTP"
    refused = {each.address for each in herd.addresses() if each.refusal}
    addresses = (f"{each} (not serving)" if each in refused else each for each in herd.instance.listen.split(","))
    return f"HTTP on {','.join(addresses)}"


def _devices(herd: InstanceState, noted: list[spool_pb2.Offer], allocations: Allocations | None) -> Table:
    """A row for each device, not for each replica."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "SINCE", "HELD BY", dispensable=("HELD BY", "SINCE"))
    for resource in noted:
        for device in resource.devices:
            since = herd.since(device)
            age = f"{duration(time.time() - since)} ago" if since else ""
            held = _holders(resource.name, device, allocations)
            name = tables.device_name(device)
            made.add_row(resource.name, name, tables.health(device), age, plain(held))
    return made


def _about_cordons(herd: InstanceState, resources: list[spool_pb2.Offer]) -> Iterator[Text]:
    """A line for each cordoned device: by whom and why, and the command that ends it."""
    for resource in resources:
        for device in filter(is_cordoned, resource.devices):
            who = cordon_of(herd.held(device))
            yield Text(plain(f"cordoned {who}; {uncordon(resource.name, device.id)} ends it"), "dim")


def _to_do(herd: InstanceState, resources: list[spool_pb2.Offer]) -> Iterator[Text]:
    """A line for each of the first Unhealthy devices: what a person does."""
    ill = [device for resource in resources for device in filter(is_ill, resource.devices)]
    for device in ill[:MOST_TO_DO]:
        if told := to_do(herd.held(device)):
            yield Text(plain(f"{device.id}: {told}"))
    if len(ill) > MOST_TO_DO:
        yield Text(f"and {amount(len(ill) - MOST_TO_DO, 'device')} more: devherd explain")


def _lost(herd: InstanceState, devices: Sequence[health_pb2.LostDevice]) -> Iterator[RenderableType]:
    """The lost devices, including those that are no longer in the kubelet's lists."""
    if not devices:
        return
    made = table(
        "RESOURCE",
        "LOST DEVICE",
        "SINCE",
        "PCI ADDRESS",
        "SLOT",
        "SERIAL",
        "LAST HELD BY",
        dispensable=("LAST HELD BY",),
    )
    for device in devices:
        since = f"{duration(time.time() - device.since_timestamp_seconds)} ago"
        place = (plain(device.pci_address), plain(herd.slot(device.slot)), plain(device.serial))
        name = Text(plain(device.device), "red")
        made.add_row(device.resource_name, name, since, *place, plain(", ".join(device.pods)))
    yield made
    yield "when one is not to come back: devherd forget DEVICE"
    yield ""


def _about_the_supervisor(herd: InstanceState) -> Iterator[Text]:
    if SUPERVISOR in herd.silent:
        what = f"the supervisor, process {herd.supervisor_pid}, hangs: what else is shown may be old"
        yield Text(plain(f"{what}, and processes that end are not replaced; end it, and start devherd again"), "red")


def _about_registration(herd: InstanceState, resources: list[spool_pb2.Offer]) -> Iterator[Text]:
    """A line for each reason, with its resources: if the kubelet is away, all of them."""
    for detail, names in herd.waiting(resources).items():
        whose = f"all {len(names)} resources" if len(names) == len(resources) > 1 else ", ".join(names)
        yield Text(plain(f"not registered: {whose}: {detail}"), "red")
    for name, why in herd.drivers_waiting():
        yield Text(plain(f"not registered: {name}: {why}"), "red")


def _about_the_configuration(herd: InstanceState) -> Iterator[Text]:
    if herd.configuration.refusal:
        yield Text(plain(f"configuration not reloaded, the old one stays: {herd.configuration.refusal}"), "red")
    for line in first_lines(herd.configuration.warnings, "warnings"):
        yield Text(plain(f"configuration: {line}"), "yellow")


def _about_http(herd: InstanceState) -> Iterator[Text]:
    for address in herd.addresses():
        if address.refusal:
            yield Text(plain(refusal_of(address)), "red")


def _about_sources(herd: InstanceState) -> Iterator[Text]:
    """The health sources that cannot check, or whose reports are wrong."""
    for line in herd.source_troubles():
        yield Text(plain(line.text), "yellow")


def _resources(herd: InstanceState, resources: list[spool_pb2.Offer], allocations: Allocations | None) -> Table:
    least = (*_DISPENSABLE, "ALLOCATED", "STATE")
    made = table("RESOURCE", "HEALTHY", "TOTAL", "ALLOCATED", "REGISTERED", *_OF_A_PROCESS, dispensable=least)
    for resource in resources:
        healthy, total = sum(not device.reasons for _, device in listed(resource)), size_of(resource)
        is_well = not any(map(is_ill, resource.devices))
        made.add_row(
            resource.name,
            Text(str(healthy), "green" if healthy == total else "yellow" if is_well else "red"),
            str(total),
            _allocated(resource, allocations),
            *_served(herd, resource),
        )
    return made


def _served(herd: InstanceState, resource: spool_pb2.Offer) -> tuple[RenderableType, ...]:
    """The cells of its registration and of its process."""
    if is_by_dra(resource):
        return ("by DRA", "", "", "", "")
    is_registered = herd.registration(resource.name).registered
    registered = Text("yes", "green") if is_registered else Text("no", "red")
    return (registered, *_process(herd, herd.child_of(resource.name)))


def _drivers(herd: InstanceState) -> Table:
    """Which of the two processes has registered each DRA driver."""
    processes = [*herd.drivers[0].refusals]
    made = table("DRA DRIVER", *(process.upper() for process in processes))
    for driver in herd.drivers:
        cells = (driver.refusals[process] for process in processes)
        made.add_row(driver.name, *(Text(plain(why), "red") if why else Text("registered", "green") for why in cells))
    return made


def _others(herd: InstanceState, children: list[spool_pb2.Child]) -> Table:
    made = table("PROCESS", *_OF_A_PROCESS, dispensable=_DISPENSABLE)
    for child in children:
        made.add_row(child.name, *_process(herd, child))
    return made


RENEWAL = "renewal"
"""A restart that the process itself asked for, to see a directory that was made anew."""
_OF_A_PROCESS = ("STATE", "UPTIME", "RESTARTS", "LAST EXIT")
_DISPENSABLE = ("UPTIME", "RESTARTS", "LAST EXIT")


def _process(herd: InstanceState, child: spool_pb2.Child | None) -> tuple[RenderableType, ...]:
    """The cells of a process."""
    if child is None:
        return (Text("not started", "red"), "", "", "")
    pid = f" {child.pid}" if child.pid else ""
    is_running, suffix = child.state == RUNNING, ", silent" if child.name in herd.silent else ""
    uptime = duration(time.time() - child.started_timestamp_seconds) if is_running else ""
    restarts = ", ".join(
        f"{count} planned" if cause == RENEWAL else f"{count} by {cause}"
        for cause, count in sorted(child.restarts.items())
        if count
    )
    return (
        Text(f"{child.state}{pid}{suffix}", "green" if is_running and not suffix else "red"),
        uptime,
        restarts or "0",
        plain(child.last_exit),
    )


def _allocated(resource: spool_pb2.Offer, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    return str(sum((resource.name, device_id) in allocations for device_id, _ in listed(resource)))


def _holders(resource_name: str, device: spool_pb2.Device, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    own = spool_pb2.Offer(devices=[device])
    held = {
        f"{holder['namespace']}/{holder['pod']}": None
        for device_id, _ in listed(own)
        for holder in allocations.get((resource_name, device_id), ())
    }
    return ", ".join(held)
