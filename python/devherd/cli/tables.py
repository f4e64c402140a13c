"""Devices and problems as tables, and a view that is refreshed every second."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from devherd.instance.inventory_json import health_of, is_ill
from devherd.proto import spool_pb2
from devherd.spool import listed, size_of
from devherd.text import amount, sharing_of

_STYLE: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 3, 0, 0), "header_style": "bold"}
UNLIMITED_WIDTH = 100_000
"""Width of files and pipes: nothing is wrapped or truncated there."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Pass the error on, so that the command ends like others in a pipe; rich would exit with code 1."""
        raise  # noqa: PLE0704 - rich calls it in an `except` clause


def console() -> Console:
    """A console on stdout, without markup: brackets in a device's name are printed as they are."""
    width = None if sys.stdout.isatty() else UNLIMITED_WIDTH
    return _Console(width=width, markup=False, highlight=False, emoji=False)


def show(terminal: Console, content: RenderableType) -> None:
    """Print the content; tables drop dispensable columns if the terminal is too narrow.

    If names do not fit even then, the terminal wraps the lines: no name is truncated.
    """
    least = Measurement.get(terminal, terminal.options.update(max_width=UNLIMITED_WIDTH), content).minimum
    terminal.size = ConsoleDimensions(max(terminal.width, least), terminal.height)
    terminal.print(content)


class _Table(Table):
    """A table that wraps only its last column, so that the names in the others can be copied.

    If the screen is too narrow, drop the columns in `dispensable`, in this order, then wrap all
    columns; never truncate.
    """

    dispensable: Sequence[str] = ()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's name for its width: at least that of the columns that stay."""
        kept = self._of([column for column in self.columns if column.header not in self.dispensable])
        least = Measurement.get(console, options, kept).minimum
        return Measurement(least, super().__rich_measure__(console, options).maximum)

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
        """A table with these columns, of which only the last may be wrapped."""
        shown = Table(**_STYLE)
        shown.rows, shown.columns = self.rows, [replace(column, no_wrap=True) for column in columns]
        last = shown.columns[-1]
        last.no_wrap, last.min_width = False, cell_len(str(last.header))
        return shown

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row, and widen all columns except the last to fit it."""
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns[:-1], cells, strict=False):
            text = cell.plain if isinstance(cell, Text) else str(cell or "")
            column.min_width = max(column.min_width or 0, cell_len(text))


def _fits(shown: Table, console: Console, options: ConsoleOptions) -> bool:
    least = Measurement.get(console, options.update(max_width=UNLIMITED_WIDTH), shown).minimum
    return least <= options.max_width


def table(*headings: str, dispensable: Sequence[str] = ()) -> Table:
    """An empty table in the common style; columns in `dispensable` are dropped if the screen is too narrow."""
    made = _Table(**_STYLE)
    made.dispensable = dispensable
    for heading in headings:
        made.add_column(heading, overflow="fold", min_width=cell_len(heading))
    return made


def plain(text: str) -> str:
    """Text from a device, with unprintable characters replaced: they could control the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def absent_table(names: Iterable[str]) -> Iterator[Text]:
    """A line for each requested name or glob that matches no resource at present."""
    for name in names:
        yield Text(plain(f"{name}: not there at present"), "red")


_CONTENT = "WHAT A CONTAINER GETS"


def device_table(resources: Iterable[spool_pb2.Offer]) -> Table:
    """A table with a row for each device; its shares and replicas have no rows of their own."""
    made = table("RESOURCE", "DEVICE", "HEALTH", "NUMA", _CONTENT, dispensable=(_CONTENT, "NUMA"))
    for resource in resources:
        for device in resource.devices:
            numa = ",".join(map(str, device.numa_nodes))
            made.add_row(resource.name, device_name(device), health(device), numa, _given(device))
    return made


def device_name(device: spool_pb2.Device) -> str:
    """The device's id, followed by the number of its shares or replicas, if it has any."""
    sharing = sharing_of(device)
    return f"{plain(device.id)} ({sharing})" if sharing else plain(device.id)


def problem_table(found: Iterable[spool_pb2.Problem]) -> Table:
    """A table with a row for each problem."""
    made = table("VENDOR", "DEVICE", "PATH", "PROBLEM", dispensable=("VENDOR",))
    for problem in found:
        made.add_row(problem.vendor, plain(problem.device), plain(problem.path), Text(plain(problem.error), "red"))
    return made


def note_table(notices: Iterable[spool_pb2.Problem]) -> Iterator[Text]:
    """A line for each notice."""
    for notice in notices:
        yield Text(plain(f"note: {notice.path}: {notice.error}"), "dim")


def scan_table(
    resources: list[spool_pb2.Offer],
    found_problems: list[spool_pb2.Problem],
    duration_seconds: float,
    notices: Iterable[spool_pb2.Problem] = (),
) -> Group:
    """The result of a scan: devices, problems, notices, and a summary line."""
    count = sum(map(size_of, resources))
    unhealthy = sum(bool(device.reasons) for resource in resources for _, device in listed(resource))
    summary = (
        f"{amount(len(resources), 'resource')}, {amount(count, 'device')} ({unhealthy} unhealthy), "
        f"{amount(len(found_problems), 'problem')}, {duration_seconds * 1000:.1f} ms"
    )
    parts: list[RenderableType] = [device_table(resources), ""] if resources else []
    if found_problems:
        parts += [problem_table(found_problems), ""]
    if noted := list(note_table(notices)):
        parts += [*noted, ""]
    return Group(*parts, summary)


def health(device: spool_pb2.Device) -> Text:
    """`Healthy`, or `Unhealthy` with the reasons, and warnings in brackets."""
    reasons = f": {', '.join(device.reasons)}" if device.reasons else ""
    warnings = f" (warning: {', '.join(device.warnings)})" if device.warnings else ""
    style = "red" if is_ill(device) else "yellow" if device.reasons or device.warnings else "green"
    return Text(f"{health_of(device)}{reasons}{warnings}", style)


def _given(device: spool_pb2.Device) -> str:
    """Nodes, mounts and CDI devices; without any, the environment, which NVIDIA's runtime evaluates."""
    nodes = [_renamed(node.host_path, node.container_path) for node in device.edits.nodes]
    mounts = [_renamed(mount.host_path, mount.container_path) for mount in device.edits.mounts]
    environment = [f"{name}={value}" for name, value in sorted(device.edits.envs.items())]
    return plain(" ".join([*nodes, *mounts, *device.edits.cdi_devices] or environment))


def _renamed(host_path: str, container_path: str) -> str:
    return host_path if host_path == container_path else f"{host_path}:{container_path}"


PERIOD_SECONDS = 1.0


class Fitted:
    """Content cut to the height of the screen; the last line then gives the number of hidden lines."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's name for what draws it."""
        lines = console.render_lines(self._content, options.update(height=None), pad=False)
        room = options.max_height
        shown = lines if len(lines) <= room else lines[: room - 1]
        for line in shown:
            yield from line
            yield Segment.line()
        if len(shown) < len(lines):
            yield Text(f"… {len(lines) - len(shown)} more lines; without --watch all are shown", "dim", end="")


def watch(console: Console, look: Callable[[], RenderableType]) -> int:
    """Show the result of `look` every second: in place on a terminal, otherwise in blocks, each with the time.

    Ends with KeyboardInterrupt, or with an exception of `look`.
    """
    if not console.is_terminal:
        while True:
            content = look()
            print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            show(console, content)
            print(flush=True)
            time.sleep(PERIOD_SECONDS)
    live = Live(Fitted(look()), console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
    try:  # not `with`: an interrupt while it starts must restore the terminal, too
        live.start(refresh=True)
        while True:
            time.sleep(PERIOD_SECONDS)
            live.update(Fitted(look()), refresh=True)
    finally:
        live.stop()
