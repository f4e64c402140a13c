"""The overview of the instance: verdict, problems, configuration, health sources, notes and processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devherd.exporter import health
from devherd.exporter.status_page.device import link, timestamp
from devherd.exporter.status_page.html import MOST_ROWS, Html, element, table
from devherd.instance.files import refusal_of
from devherd.instance.inventory_json import is_ill
from devherd.instance.read import RUNNING, STARTING, InstanceState
from devherd.proto import health_pb2, spool_pb2
from devherd.spool import number_of_ids, size_of

PROBLEMS, SOURCES, CONFIGURATION, NOTES = "problems", "sources", "configuration", "notes"
PROCESSES, RESOURCES, LOST = "processes", "resources", "lost"
"""Anchors on the page. The anchor of a resource is its name."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line of the list of problems; `is_bad`: False for a warning, or a note on an operator's order."""

    text: str
    place: str
    is_bad: bool = True
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Numbers of ids in the kubelet's lists, for one resource or all."""

    total: int = 0
    unhealthy: int = 0
    warned: int = 0
    cordoned: int = 0
    """Cordoned by an operator, and Unhealthy for no other reason."""

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.total + other.total,
            self.unhealthy + other.unhealthy,
            self.warned + other.warned,
            self.cordoned + other.cordoned,
        )


def count(resource: spool_pb2.Offer) -> Count:
    """The counts of a resource."""
    return Count(
        total=size_of(resource),
        unhealthy=sum(number_of_ids(device) for device in resource.devices if is_ill(device)),
        warned=sum(number_of_ids(device) for device in resource.devices if device.warnings and not device.reasons),
        cordoned=sum(number_of_ids(device) for device in resource.devices if device.reasons and not is_ill(device)),
    )


def devices(number: int) -> str:
    """`1 device`, `1,000 devices`."""
    return f"{number:,} device{'' if number == 1 else 's'}"


def headline(herd: InstanceState) -> str:
    """Registration and health of all resources in one sentence."""
    if not herd.resources:
        return f"no devices, {len(herd.lost):,} missing" if herd.lost else "no devices"
    every, registered = sum(map(count, herd.resources), Count()), _registered(herd)
    well = every.total - every.cordoned
    number, word = (every.unhealthy, "unhealthy") if every.unhealthy else (well, "healthy")
    cordoned = f", {every.cordoned:,} cordoned" if every.cordoned else ""
    missing = sum(not device.is_listed for device in herd.lost)
    lost = f", {missing:,} missing" if missing else ""
    return f"{registered}, {number:,} of {devices(every.total)} {word}{cordoned}{lost}"


def _registered(herd: InstanceState) -> str:
    if herd.is_dra:
        waiting, what, total = len([*herd.drivers_waiting()]), "DRA drivers", len(herd.drivers)
    else:
        waiting, what, total = sum(map(len, herd.waiting().values())), "resources", len(herd.resources)
    if waiting and not total:
        return f"no {what} yet"
    return f"{waiting} of {total} {what} not registered" if waiting else f"all {what} registered"


def troubles(herd: InstanceState) -> Sequence[Trouble]:
    """All problems: first the bad ones, then warnings, then notes on operators' orders."""
    found = [
        *_of_the_node(herd),
        *_of_the_instance(herd),
        *_of_registration(herd),
        *_of_resources(herd),
        *_of_lost_devices(herd),
        *_of_the_scan(herd),
    ]
    return sorted(found, key=lambda trouble: (not trouble.is_bad, trouble.is_note))


def troubles_of_the_instance(herd: InstanceState) -> Sequence[Trouble]:
    """As `troubles`, without the problems of devices."""
    found = [*_of_the_node(herd), *_of_the_instance(herd), *_of_registration(herd), *_of_the_scan(herd)]
    return sorted(found, key=lambda trouble: not trouble.is_bad)


def is_failing(child: spool_pb2.Child) -> bool:
    """True if a process neither runs nor starts."""
    return child.state not in {RUNNING, STARTING}


def _of_the_node(herd: InstanceState) -> Iterator[Trouble]:
    """Problems that no process has caused."""
    if lack := herd.lack_of_room():
        yield Trouble(lack, PROCESSES)
    if second := herd.second_instance():
        yield Trouble(second, PROCESSES, is_bad=False)


def _of_the_instance(herd: InstanceState) -> Iterator[Trouble]:
    for reason in health.reasons_not_alive(herd):
        if not reason.startswith("scanner: ") or "scanner" not in herd.children:  # otherwise the loop below reports it
            yield Trouble(reason, PROCESSES)
    of_resources = [herd.child_of(resource.name) for resource in herd.resources]
    for name, child in sorted(herd.children.items()):
        if is_failing(child) and child not in of_resources:  # the line of its resource reports those
            last_exit = f", last exit: {child.last_exit}" if child.last_exit else ""
            yield Trouble(f"{name}: {child.state}{last_exit}", PROCESSES)
        if name in herd.silent:
            yield Trouble(f"{name}: {health.NO_SIGN_OF_LIFE}", PROCESSES)
    for address in herd.addresses():
        if address.refusal:
            yield Trouble(refusal_of(address), PROCESSES)
    if herd.configuration.refusal:
        yield Trouble(f"configuration not reloaded, the old one stays: {herd.configuration.refusal}", CONFIGURATION)
    if herd.configuration.warnings:
        number = len(herd.configuration.warnings)
        yield Trouble(f"{number} configuration warning{'' if number == 1 else 's'}", CONFIGURATION, is_bad=False)


def _of_registration(herd: InstanceState) -> Iterator[Trouble]:
    """One line per reason: while the kubelet is away, all resources have the same one."""
    for detail, names in herd.waiting().items():
        if len(names) == 1:
            yield Trouble(f"{names[0]}: {detail}", names[0])
        else:
            whose = "all" if len(names) == len(herd.resources) else f"{len(names)} of"
            yield Trouble(f"{whose} {len(herd.resources)} resources: {detail}", RESOURCES)
    yield from (Trouble(f"{name}: {why}", PROCESSES) for name, why in herd.drivers_waiting())


def _of_resources(herd: InstanceState) -> Iterator[Trouble]:
    for resource in herd.resources:
        counted = count(resource)
        if counted.unhealthy:
            reasons = sorted({reason for device in filter(is_ill, resource.devices) for reason in device.reasons})
            text = f"{resource.name}: {counted.unhealthy:,} of {devices(counted.total)} unhealthy"
            yield Trouble(f"{text} ({', '.join(reasons)})", resource.name)
        if counted.warned:
            warnings = sorted({warning for device in resource.devices for warning in device.warnings})
            text = f"{resource.name}: {counted.warned:,} of {devices(counted.total)} with a warning"
            yield Trouble(f"{text} ({', '.join(warnings)})", resource.name, is_bad=False)
        if counted.cordoned:
            text = f"{resource.name}: {counted.cordoned:,} of {devices(counted.total)} cordoned"
            yield Trouble(text, resource.name, is_bad=False, is_note=True)


def _of_lost_devices(herd: InstanceState) -> Iterator[Trouble]:
    """One line for each resource."""
    by_name: dict[str, int] = {}
    for device in herd.lost:
        by_name[device.resource_name] = by_name.get(device.resource_name, 0) + 1
    for name, number in by_name.items():
        yield Trouble(f"{name}: {devices(number)} missing", LOST)


def _of_the_scan(herd: InstanceState) -> Iterator[Trouble]:
    if herd.scan is None and not herd.resources:
        yield Trouble("no scan has finished yet", PROCESSES, is_bad=False)
    if overdue := herd.overdue_scan():
        yield Trouble(overdue, PROCESSES)
    problems = len(herd.scan.problems) if herd.scan else 0
    if problems:
        yield Trouble(f"{problems} problem{'' if problems == 1 else 's'} of the last scan", PROBLEMS, is_bad=False)
    for trouble in herd.source_troubles():
        yield Trouble(trouble.text, SOURCES, is_bad=False)


def verdict(herd: InstanceState, found: Sequence[Trouble]) -> Html:
    """One word and one sentence, whose changes screen readers announce."""
    word, style = _word(found)
    return element("p", element("strong", word, class_=style), f": {headline(herd)}", role="status", class_="verdict")


def problems(found: Sequence[Trouble]) -> Html:
    """The list of problems; empty without any."""
    lines = [element("li", link(trouble.place, text=trouble.text), class_=_style(trouble)) for trouble in found]
    more = len(lines) - MOST_ROWS
    if more > 0:
        lines[MOST_ROWS:] = [element("li", f"and {more} more")]
    return element("ul", *lines, class_="troubles") if lines else Html()


def overview(herd: InstanceState) -> Iterator[Html]:
    """The sections of the overview, in this order. Sections without content are omitted, except the processes."""
    problems = herd.scan.problems if herd.scan else ()
    if problems:
        yield _section(
            PROBLEMS,
            "Problems of the last scan",
            table("What the last scan could not do", ("Vendor", "Device", "Path", "Error"), map(_problem, problems)),
        )
    if herd.lost:
        head = ("Resource", "Device", "Missing since", "PCI address", "Slot", "Serial number", "Last held by", "Before")
        shown = table("Devices that are missed until they are back", head, map(_lost_device, herd.lost))
        how = element("p", "When one is not to come back: ", element("code", "devherd forget DEVICE"))
        yield _section(LOST, "Lost devices", shown, how)
    if herd.configuration.warnings or herd.configuration.refusal:
        yield _section(CONFIGURATION, "Configuration", _configuration(herd.configuration))
    troubled = [(trouble.source, element("span", trouble.text, class_="warn")) for trouble in herd.source_troubles()]
    if troubled:
        shown = table("Health sources that cannot check devices, or report wrongly", ("Source", "Problem"), troubled)
        yield _section(SOURCES, "Health sources", shown)
    if herd.scan and herd.scan.notices:
        yield _section(NOTES, "Notes", element("ul", *map(_note, herd.scan.notices)))
    yield _processes(herd)


def _word(found: Sequence[Trouble]) -> tuple[str, str]:
    if not found or found[0].is_note:
        return "Healthy", "good"
    return ("Unhealthy", "bad") if found[0].is_bad else ("Warning", "warn")


def _style(trouble: Trouble) -> str:
    return "bad" if trouble.is_bad else "off" if trouble.is_note else "warn"


def _section(place: str, title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content, id=place)


def _problem(problem: spool_pb2.Problem) -> Sequence[str]:
    return problem.vendor, problem.device, problem.path, element("span", problem.error, class_="warn")


def _lost_device(device: health_pb2.LostDevice) -> Sequence[str]:
    return (
        device.resource_name,
        element("span", device.device, class_="bad"),
        timestamp(device.since_timestamp_seconds),
        device.pci_address,
        device.slot,
        device.serial,
        ", ".join(device.pods),
        ", ".join(sorted({held.reason for held in device.findings})),
    )


def _note(notice: spool_pb2.Problem) -> Html:
    return element("li", f"{notice.path}: {notice.error}")


def _configuration(configuration: spool_pb2.Configuration) -> Html:
    lines = [element("li", element("span", warning, class_="warn")) for warning in configuration.warnings]
    if configuration.refusal:
        refusal = f"The last reload was refused, the old configuration stays: {configuration.refusal}"
        lines.insert(0, element("li", element("span", refusal, class_="bad")))
    return element("ul", *lines)


def _processes(herd: InstanceState) -> Html:
    children = [child for _, child in sorted(herd.children.items())]
    wrong = [child for child in children if is_failing(child) or child.name in herd.silent]
    well = len(children) - len(wrong)
    counted = f"{well} of {len(children)} running" if children else "none known"
    head = ("Process", "State", "Process id", "Started", "Restarts", "Last exit")
    in_order = sorted(children, key=lambda child: child not in wrong)
    rows = (_process(child, is_silent=child.name in herd.silent) for child in in_order)
    shown = table("Processes of this instance", head, rows) if children else Html()
    line = element(
        "summary", element("h2", "Processes"), " ", element("span", counted, class_="bad" if wrong else "good")
    )
    return element("section", element("details", line, shown, open=bool(wrong)), id=PROCESSES)


def _process(child: spool_pb2.Child, *, is_silent: bool) -> Sequence[str]:
    wrong = is_failing(child) or is_silent
    state = f"{child.state}, no heartbeat" if is_silent else child.state
    return (
        child.name,
        element("span", state, class_="bad" if wrong else "good"),
        str(child.pid or ""),
        timestamp(child.started_timestamp_seconds) if child.started_timestamp_seconds else "",
        ", ".join(f"{number} by {cause}" for cause, number in sorted(child.restarts.items()) if number) or "0",
        child.last_exit,
    )
