"""The status page: what an operator wants to see first, as one plain page without scripts.

page.html is the frame; here are the tables that go into it. Every text is escaped where it becomes HTML, in `_cell` and
`render`: what the functions above them return is text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from devherd.heartbeat import Heartbeats
from devherd.instance import RUNNING, Allocations, Herd
from devherd.inventory_json import health_of, host_name
from devherd.proto import spool_pb2
from devherd.spool.listing import listed, size_of
from devherd.version import version

MAX_DEVICE_ROWS = 500
"""A page of ten thousand rows is of no use; the JSON has all devices."""

PROBLEMS = "Problems of the last scan"

_FRAME = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with a class that page.html gives a colour: `good` or `bad`."""

    text: str
    style: str


Cell = str | Marked | Sequence[str | Marked]
"""A text, a coloured one, or several lines of them."""


@dataclass(frozen=True, slots=True)
class Table:
    """One section of the page; `nothing` is shown instead of rows when there are none, `more` below them."""

    title: str
    headings: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    nothing: str
    more: str = ""


def render(herd: Herd, allocations: Allocations | None, reasons: Sequence[str], heartbeats: Heartbeats) -> str:
    """The page; `reasons` are those for which the instance is not alive or not ready: more may be wrong than these."""
    return _FRAME.substitute(
        host=escape(host_name()),
        version=escape(version()),
        verdict=_verdict([*reasons, *what_is_wrong(herd)]),
        sections="".join(map(_section, tables(herd, allocations, heartbeats))),
    )


def tables(herd: Herd, allocations: Allocations | None, heartbeats: Heartbeats) -> Iterator[Table]:
    """The sections, in the order of the page."""
    headings: Sequence[str] = ("Resource", "Vendor", "Healthy", "Total", "Allocated", "Registered")
    yield Table("Resources", headings, _resource_rows(herd, allocations), "No device has been found.")
    headings = ("Vendor", "Device", "Path", "Error")
    yield Table(PROBLEMS, headings, _problem_rows(herd), "None.")
    if herd.configuration.warnings:
        yield Table(
            "Settings without an effect", ("Setting",), ((warning,) for warning in herd.configuration.warnings), ""
        )
    headings = ("Process", "State", "Process id", "Last heartbeat", "Restarts", "Last exit")
    yield Table("Processes", headings, _child_rows(herd, heartbeats), "None is known.")
    for resource in herd.resources:
        yield _devices(resource, allocations)


def what_is_wrong(herd: Herd) -> Iterator[str]:
    """What an operator has to look at, though the instance may be alive and ready."""
    if herd.configuration.refusal:
        yield f"configuration not reloaded, the old one stays: {herd.configuration.refusal}"
    for resource in herd.resources:
        unhealthy = sum(bool(device.reasons) for _, device in listed(resource))
        if unhealthy:
            yield f"{resource.name}: {unhealthy} of {size_of(resource)} devices Unhealthy"
    problems = len(herd.scan.problems) if herd.scan else 0
    if problems:
        yield f"problems of the last scan: {problems}"
    for name, child in sorted(herd.children.items()):
        if child.state not in {RUNNING, "STARTING"}:
            yield f"{name}: {child.state}"


def _resource_rows(herd: Herd, allocations: Allocations | None) -> Iterator[Sequence[Cell]]:
    for resource in herd.resources:
        healthy = sum(not device.reasons for _, device in listed(resource))
        total = size_of(resource)
        registration = herd.registration(resource.name)
        yield (
            resource.name,
            resource.vendor,
            _marked(str(healthy), good=healthy == total),
            str(total),
            _allocated_count(resource, allocations),
            _marked("yes" if registration.registered else registration.detail, good=registration.registered),
        )


def _allocated_count(resource: spool_pb2.Resource, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    return str(sum((resource.name, device_id) in allocations for device_id, _ in listed(resource)))


def _devices(resource: spool_pb2.Resource, allocations: Allocations | None) -> Table:
    """Unhealthy devices first, then those with warnings: where not all can be shown, they are the ones to look at."""
    shown = sorted(listed(resource), key=lambda each: (not each[1].reasons, not each[1].warnings))[:MAX_DEVICE_ROWS]
    left_out = size_of(resource) - len(shown)
    return Table(
        resource.name,
        ("Device", "Health", "NUMA", "Nodes", "Held by", "Facts"),
        [_device_row(resource.name, device_id, device, allocations or {}) for device_id, device in shown],
        "No device.",
        f"{left_out} more are in /api/v1/inventory." if left_out else "",
    )


def _device_row(
    resource_name: str, device_id: str, device: spool_pb2.Device, allocations: Allocations
) -> Sequence[Cell]:
    holders = allocations.get((resource_name, device_id), [])
    return (
        device_id,
        _health(device),
        ", ".join(map(str, device.numa_nodes)),
        [node.host_path for node in device.edits.nodes],
        [f"{holder['namespace']}/{holder['pod']} ({holder['container']})" for holder in holders],
        [f"{name}: {device.attributes[name]}" for name in sorted(device.attributes)],
    )


def _health(device: spool_pb2.Device) -> Cell:
    """Health in one word or its reasons; warnings a line each."""
    shown = _marked(", ".join(device.reasons) or health_of(device), good=not device.reasons)
    return [shown, *(f"warning: {warning}" for warning in device.warnings)] if device.warnings else shown


def _problem_rows(herd: Herd) -> Iterator[Sequence[Cell]]:
    for problem in herd.scan.problems if herd.scan else ():
        yield problem.vendor, problem.device, problem.path, _marked(problem.error, good=False)


def _child_rows(herd: Herd, heartbeats: Heartbeats) -> Iterator[Sequence[Cell]]:
    for name, child in sorted(herd.children.items()):
        silence = heartbeats.silence_seconds(child.heartbeat_slot)
        yield (
            name,
            _marked(child.state, good=child.state == RUNNING),
            str(child.pid or ""),
            f"{silence:.0f} s ago" if child.pid else "",
            ", ".join(f"{count} by {cause}" for cause, count in sorted(child.restarts.items()) if count),
            child.last_exit,
        )


def _marked(text: str, *, good: bool) -> Marked:
    return Marked(text, "good" if good else "bad")


def _verdict(reasons: Sequence[str]) -> str:
    if not reasons:
        return f"<p>{_cell(_marked('All is well.', good=True))}</p>"
    return f"<ul>{''.join(f'<li>{_cell(_marked(reason, good=False))}</li>' for reason in reasons)}</ul>"


def _section(table: Table) -> str:
    title = f"<h2>{escape(table.title)}</h2>"
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    if not body:
        return f"{title}<p>{escape(table.nothing)}</p>"
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    more = f"<p>{escape(table.more)}</p>" if table.more else ""
    return f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(cell: Cell) -> str:
    if isinstance(cell, Marked):
        return f'<span class="{escape(cell.style)}">{escape(cell.text)}</span>'
    return escape(cell) if isinstance(cell, str) else "<br>".join(map(_cell, cell))
