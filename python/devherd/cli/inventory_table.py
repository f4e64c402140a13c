"""Devices and problems as tables for people."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from devherd.amounts import amount
from devherd.inventory_json import health_of
from devherd.proto import spool_pb2
from devherd.spool.listing import listed, size_of

_STYLE: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 3, 0, 0), "header_style": "bold"}
UNLIMITED_WIDTH = 100_000
"""A file or a pipe has no width: nothing is wrapped or cut there."""


def console() -> Console:
    """stdout, which takes text as it is: brackets in a device's name are no markup."""
    width = None if sys.stdout.isatty() else UNLIMITED_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def show(terminal: Console, content: RenderableType) -> None:
    """Print it; where a terminal is too narrow for the names in a table, it wraps its lines, and none is cut."""
    least = Measurement.get(terminal, terminal.options.update(max_width=UNLIMITED_WIDTH), content).minimum
    terminal.size = ConsoleDimensions(max(terminal.width, least), terminal.height)
    terminal.print(content)


class _Table(Table):
    """Names in it can be copied: only the last column is folded. `dispensable` are headings, the first to go first.

    Where a screen is narrower than that, as under `--watch`, those columns go, and then all are folded: none is cut.
    """

    dispensable: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's name for what draws it."""
        left_out: list[str] = []
        shown = self._of(self.columns)
        for heading in self.dispensable:
            if _fits(shown, console, options):
                break
            left_out.append(heading)
            shown = self._of([column for column in self.columns if column.header not in left_out])
        if not _fits(shown, console, options):
            for column in shown.columns:
                column.no_wrap, column.min_width = False, None
        yield shown
        if left_out:
            yield Text(f"… the screen is too narrow for {', '.join(left_out)}", "dim")

    def _of(self, columns: Sequence[Column]) -> Table:
        """With these columns, of which the last may be folded."""
        shown = Table(**_STYLE)
        shown.rows, shown.columns = self.rows, [replace(column, no_wrap=True) for column in columns]
        last = shown.columns[-1]
        last.no_wrap, last.min_width = False, cell_len(str(last.header))
        return shown

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """A row, for which each column but the last has room."""
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns[:-1], cells, strict=False):
            text = cell.plain if isinstance(cell, Text) else str(cell or "")
            column.min_width = max(column.min_width or 0, cell_len(text))


def _fits(shown: Table, console: Console, options: ConsoleOptions) -> bool:
    least = Measurement.get(console, options.update(max_width=UNLIMITED_WIDTH), shown).minimum
    return least <= options.max_width


def table(*headings: str, dispensable: Sequence[str] = ()) -> Table:
    """An empty table in the house's style; `dispensable` headings are left out of a screen that is too narrow."""
    made = _Table(**_STYLE)
    made.dispensable = dispensable
    for heading in headings:
        made.add_column(heading, overflow="fold", min_width=cell_len(heading))
    return made


def plain(text: str) -> str:
    """Text from a device, without control characters for the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def absent(names: Iterable[str]) -> Iterator[Text]:
    """A line for each resource that was asked for, and is not there."""
    for name in names:
        yield Text(plain(f"{name}: not there at present"), "red")


_CONTENT = "WHAT A CONTAINER GETS"


def devices(resources: Iterable[spool_pb2.Resource]) -> Table:
    """A row for each device; its replicas are the same one."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "NUMA", _CONTENT, dispensable=(_CONTENT, "NUMA"))
    for resource in resources:
        for device in resource.devices:
            numa = ",".join(map(str, device.numa_nodes))
            made.add_row(resource.name, device_name(device), health(device), numa, _given(device))
    return made


def device_name(device: spool_pb2.Device) -> str:
    """Its own id, and how often it is offered if that is several times."""
    replicas = f" ({amount(device.replicas, 'replica')})" if device.replicas else ""
    return f"{plain(device.id)}{replicas}"


def problems(found: Iterable[spool_pb2.Problem]) -> Table:
    """A row for each problem."""
    made = table("VENDOR", "DEVICE", "PATH", "PROBLEM", dispensable=("VENDOR",))
    for problem in found:
        made.add_row(problem.vendor, plain(problem.device), plain(problem.path), Text(plain(problem.error), "red"))
    return made


def notes(notices: Iterable[spool_pb2.Problem]) -> Iterator[Text]:
    """A line for each."""
    for notice in notices:
        yield Text(plain(f"note: {notice.path}: {notice.error}"), "dim")


def scan(
    resources: list[spool_pb2.Resource],
    found_problems: list[spool_pb2.Problem],
    duration_seconds: float,
    notices: Iterable[spool_pb2.Problem] = (),
) -> Group:
    """A whole scan: devices, problems, notes, and a line that sums them up."""
    count = sum(map(size_of, resources))
    unhealthy = sum(bool(device.reasons) for resource in resources for _, device in listed(resource))
    summary = (
        f"{amount(len(resources), 'resource')}, {amount(count, 'device')} ({unhealthy} unhealthy), "
        f"{amount(len(found_problems), 'problem')}, {duration_seconds * 1000:.1f} ms"
    )
    parts: list[RenderableType] = [devices(resources), ""] if resources else []
    if found_problems:
        parts += [problems(found_problems), ""]
    if noted := list(notes(notices)):
        parts += [*noted, ""]
    return Group(*parts, summary)


def health(device: spool_pb2.Device) -> Text:
    """`Healthy`, or `Unhealthy` with the reasons, and warnings in brackets."""
    reasons = f": {', '.join(device.reasons)}" if device.reasons else ""
    warnings = f" (warning: {', '.join(device.warnings)})" if device.warnings else ""
    style = "red" if device.reasons else "yellow" if device.warnings else "green"
    return Text(f"{health_of(device)}{reasons}{warnings}", style)


def _given(device: spool_pb2.Device) -> str:
    """Nodes, mounts and CDI devices; where there are none, the environment, which NVIDIA's runtime acts on."""
    nodes = [_renamed(node.host_path, node.container_path) for node in device.edits.nodes]
    mounts = [_renamed(mount.host_path, mount.container_path) for mount in device.edits.mounts]
    environment = [f"{name}={value}" for name, value in sorted(device.edits.envs.items())]
    return plain(" ".join([*nodes, *mounts, *device.edits.cdi_devices] or environment))


def _renamed(host_path: str, container_path: str) -> str:
    return host_path if host_path == container_path else f"{host_path}:{container_path}"
