"""The status page: what an operator wants to see first, as one plain page without scripts."""

import html
from collections.abc import Iterable, Sequence

from devherd.heartbeat import Heartbeats
from devherd.inventory_json import health_of, host_name
from devherd.proto import spool_pb2
from devherd.run_directory import RUNNING, Allocations, Herd
from devherd.version import version

REFRESH_SECONDS = 5
MAX_DEVICE_ROWS = 500
"""A page of ten thousand rows helps nobody; the JSON has them all."""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
"""


class Markup(str):
    """HTML that is finished; every other string is escaped."""

    __slots__ = ()


Row = Sequence[str]


def render(herd: Herd, allocations: Allocations | None, reasons: Sequence[str], heartbeats: Heartbeats) -> str:
    """The page; `reasons` are those for which the instance is not alive or not ready."""
    host = html.escape(host_name())
    return "".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>devherd on {host}</title>',
            '<meta name="viewport" content="width=device-width">',
            f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><style>{_STYLE}</style></head><body>',
            f"<h1>devherd {html.escape(version())} on {host}</h1>",
            _verdict(reasons),
            _section("Resources", _RESOURCE_HEADINGS, _resource_rows(herd, allocations), "No device has been found."),
            *(_devices(resource, allocations) for resource in herd.resources),
            _section("Problems of the last scan", ("Vendor", "Device", "Path", "Error"), _problem_rows(herd), "None."),
            _section("Processes", _CHILD_HEADINGS, _child_rows(herd, heartbeats), "None is known."),
            '<p>More: <a href="/metrics">/metrics</a>, <a href="/api/v1/inventory">/api/v1/inventory</a>, ',
            '<a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a></p></body></html>\n',
        ]
    )


_RESOURCE_HEADINGS = ("Resource", "Vendor", "Healthy", "Total", "Allocated", "Registered")
_DEVICE_HEADINGS = ("Device", "Health", "NUMA", "Nodes", "Held by", "Facts")
_CHILD_HEADINGS = ("Process", "State", "Process id", "Last heartbeat", "Restarts", "Last exit")


def _verdict(reasons: Sequence[str]) -> str:
    if not reasons:
        return f"<p>{_good('All is well.')}</p>"
    return f"<ul>{''.join(f'<li>{_bad(reason)}</li>' for reason in reasons)}</ul>"


def _resource_rows(herd: Herd, allocations: Allocations | None) -> Iterable[Row]:
    for resource in herd.resources:
        healthy = sum(not device.reasons for device in resource.devices)
        total = len(resource.devices)
        registration = herd.registration(resource.name)
        yield (
            resource.name,
            resource.vendor,
            (_good if healthy == total else _bad)(str(healthy)),
            str(total),
            _allocated_count(resource, allocations),
            _good("yes") if registration.registered else _bad(registration.detail),
        )


def _allocated_count(resource: spool_pb2.Resource, allocations: Allocations | None) -> str:
    if allocations is None:
        return "unknown"
    return str(sum((resource.name, device.id) in allocations for device in resource.devices))


def _devices(resource: spool_pb2.Resource, allocations: Allocations | None) -> str:
    """Unhealthy devices first: where there are too many to show, they are what is looked for."""
    shown = sorted(resource.devices, key=lambda device: not device.reasons)[:MAX_DEVICE_ROWS]
    rows = [_device_row(resource.name, device, allocations or {}) for device in shown]
    left_out = len(resource.devices) - len(shown)
    more = f"<p>{left_out} more are in /api/v1/inventory.</p>" if left_out else ""
    return _section(resource.name, _DEVICE_HEADINGS, rows, "No device.") + more


def _device_row(resource_name: str, device: spool_pb2.Device, allocations: Allocations) -> Row:
    holders = allocations.get((resource_name, device.id), [])
    return (
        device.id,
        _bad(", ".join(device.reasons)) if device.reasons else _good(health_of(device)),
        ", ".join(map(str, device.numa_nodes)),
        _lines(node.host_path for node in device.nodes),
        _lines(f"{holder['namespace']}/{holder['pod']} ({holder['container']})" for holder in holders),
        _lines(f"{name}: {device.attributes[name]}" for name in sorted(device.attributes)),
    )


def _problem_rows(herd: Herd) -> Iterable[Row]:
    for problem in herd.scan.problems if herd.scan else ():
        yield problem.vendor, problem.device, problem.path, _bad(problem.error)


def _child_rows(herd: Herd, heartbeats: Heartbeats) -> Iterable[Row]:
    for name, child in sorted(herd.children.items()):
        silence = heartbeats.silence_seconds(child.heartbeat_slot)
        yield (
            name,
            (_good if child.state == RUNNING else _bad)(child.state),
            str(child.pid or ""),
            f"{silence:.0f} s ago" if child.pid else "",
            ", ".join(f"{count} by {cause}" for cause, count in sorted(child.restarts.items()) if count),
            child.last_exit,
        )


def _section(title: str, headings: Row, rows: Iterable[Row], nothing: str) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    heading = f"<h2>{html.escape(title)}</h2>"
    if not body:
        return f"{heading}<p>{html.escape(nothing)}</p>"
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    return f'{heading}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _escaped(cell: str) -> str:
    return cell if isinstance(cell, Markup) else html.escape(cell)


def _lines(texts: Iterable[str]) -> Markup:
    return Markup("<br>".join(html.escape(text) for text in texts))


def _good(text: str) -> Markup:
    return Markup(f'<span class="good">{html.escape(text)}</span>')


def _bad(text: str) -> Markup:
    return Markup(f'<span class="bad">{html.escape(text)}</span>')
