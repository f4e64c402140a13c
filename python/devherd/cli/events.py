"""Show past events: verdicts on devices, registrations, allocations, reloads, starts and ends of processes.

Each process keeps its last few hundred events in the run directory, so those of an instance that has ended are
shown, too.
"""

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from devherd import history
from devherd.cli.instance import instance_settings
from devherd.errors import ExitCode, UnreachableError, UsageError
from devherd.history import KINDS, HistoryEvent
from devherd.instance.inventory_json import Json
from devherd.settings import Settings

if TYPE_CHECKING:
    from rich.text import Text

LOOK_SECONDS = 0.25
"""Time between two reads of `--follow`."""
_WIDEST_KIND = max(map(len, KINDS))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--follow", "-f", action="store_true", help="print new events as they happen")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="json: one object a line")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these; can be repeated")
    parser.add_argument("--resource", metavar="NAME", help="only events of this resource")
    parser.add_argument("--since", metavar="WHEN", help="2026-11-22T18:00:00Z, or how long ago: 90s, 2h, 3d")
    parser.add_argument("--limit", metavar="N", type=int, default=200, help="the newest N, 0 = all (default: 200)")


def run(arguments: argparse.Namespace) -> int:
    """Print the events. Raises UnreachableError without a readable history, UsageError for a bad time or limit."""
    since = _since(arguments.since, time.time()) if arguments.since else 0.0
    if arguments.limit < 0:
        raise UsageError(f"`--limit {arguments.limit}` is not a number of events", "it is below 0", "0 = all of them")
    settings = instance_settings(arguments)
    show = _show_json if arguments.output == "json" else _printer()
    try:
        follower = history.Follower(settings.run_dir) if arguments.follow else None
        limit = arguments.limit or None
        wanted = {"kinds": arguments.kind, "resource_name": arguments.resource, "since": since}
        past = history.events(settings.run_dir, limit=limit, **wanted)
        _require_history(settings)
        for event in past:
            show(event)
        while follower is not None:
            for event in follower.news():
                if event not in past and history.fits(event, **wanted):
                    show(event)
            time.sleep(LOOK_SECONDS)
    except PermissionError as error:
        raise UnreachableError(
            f"cannot read the history in {settings.run_dir}", error.strerror or str(error), "use sudo"
        ) from error
    return ExitCode.DONE


def event_json(event: HistoryEvent) -> Json:
    """An event as JSON; every key is always present."""
    return {
        "time": _shown_time(event.time),
        "kind": event.kind,
        "message": event.message,
        "resource_name": event.resource_name or None,
        "device_id": event.device_id or None,
        "reasons": list(event.reasons),
        "process": event.process,
        "details": dict(event.details),
    }


def _require_history(settings: Settings) -> None:
    if not settings.history_directory.is_dir():
        raise UnreachableError(
            f"no instance has left a history in {settings.run_dir}",
            f"{settings.history_directory} does not exist",
            "start one with `devherd run`, or name its directory with --run-dir",
        )


def _show_json(event: HistoryEvent) -> None:
    print(json.dumps(event_json(event), ensure_ascii=False), flush=True)


def _printer() -> Callable[[HistoryEvent], None]:
    from devherd.cli.tables import console

    terminal = console()

    def show(event: HistoryEvent) -> None:
        terminal.print(_line(event), soft_wrap=True)
        terminal.file.flush()

    return show


def _line(event: HistoryEvent) -> "Text":
    from rich.text import Text

    from devherd.cli.tables import plain

    about = " ".join(filter(None, (event.resource_name, event.device_id)))
    message = f"{about}: {event.message}" if about else event.message
    return Text.assemble(
        (_shown_time(event.time), "dim"), f"  {event.kind:<{_WIDEST_KIND}}  ", (plain(message), _style(event))
    )


def _style(event: HistoryEvent) -> str:
    if event.kind == "verdict":
        return "red" if event.reasons else "yellow" if event.details.get("warning") else "green"
    return "yellow" if event.kind in {"unregistered", "problem"} else ""


def _shown_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{int(seconds * 1000) % 1000:03d}Z"


def _since(text: str, now: float) -> float:
    """The Unix second that the text gives. Raises UsageError if it is not a time."""
    from devherd.config.values import parse_duration

    days = text.removesuffix("d")
    try:
        return now - (float(days) * 86_400 if days != text else float(parse_duration(text)))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        cure = "write it like 2026-11-22T18:00:00Z, or how long ago: 90s, 2h, 3d"
        raise UsageError(f"`--since {text}` is not a time", "it is neither a time nor how long ago", cure) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
