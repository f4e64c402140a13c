"""What the page has of the instance as a whole: the verdict, what is wrong, settings, sources and processes."""

from collections.abc import Iterator, Sequence

from devherd.exporter.status_page.device import link, timestamp
from devherd.exporter.status_page.html import Html, element, joined
from devherd.exporter.status_page.table import MOST_ROWS, table
from devherd.exporter.status_page.trouble import (
    CONFIGURATION,
    NOTES,
    PROBLEMS,
    PROCESSES,
    SOURCES,
    Trouble,
    headline,
    is_failing,
    is_silent,
)
from devherd.heartbeat import Heartbeats
from devherd.instance import Herd
from devherd.proto import spool_pb2


def verdict(herd: Herd, found: Sequence[Trouble]) -> Html:
    """One word and one sentence, which a screen reader says when they change; below them what is wrong."""
    word, style = _word(found)
    said = element("p", element("strong", word, class_=style), f": {headline(herd)}", role="status", class_="verdict")
    lines = [element("li", link(trouble.place, text=trouble.text), class_=_style(trouble)) for trouble in found]
    more = len(lines) - MOST_ROWS
    if more > 0:
        lines[MOST_ROWS:] = [element("li", f"and {more} more")]
    return joined(said, element("ul", *lines, class_="troubles") if lines else "")


def overview(herd: Herd, heartbeats: Heartbeats) -> Iterator[Html]:
    """What there is to say, in this order; of problems, warnings, sources and notes only where there are some."""
    problems = herd.scan.problems if herd.scan else ()
    if problems:
        yield _section(
            PROBLEMS,
            "Problems of the last scan",
            table("What the last scan could not do", ("Vendor", "Device", "Path", "Error"), map(_problem, problems)),
        )
    if herd.configuration.warnings or herd.configuration.refusal:
        yield _section(CONFIGURATION, "Configuration", _configuration(herd.configuration))
    failed = [
        (source.source, element("span", source.failed, class_="warn")) for source in herd.sources if source.failed
    ]
    if failed:
        head = ("Source", "Why it cannot look")
        yield _section(SOURCES, "Health sources", table("Health sources that cannot look", head, failed))
    if herd.scan and herd.scan.notices:
        yield _section(NOTES, "Notes", element("ul", *map(_note, herd.scan.notices)))
    yield _processes(herd, heartbeats)


def _word(found: Sequence[Trouble]) -> tuple[str, str]:
    if not found:
        return "Healthy", "good"
    return ("Unhealthy", "bad") if found[0].is_bad else ("Warning", "warn")


def _style(trouble: Trouble) -> str:
    return "bad" if trouble.is_bad else "warn"


def _section(place: str, title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content, id=place)


def _problem(problem: spool_pb2.Problem) -> Sequence[str]:
    return problem.vendor, problem.device, problem.path, element("span", problem.error, class_="warn")


def _note(notice: spool_pb2.Problem) -> Html:
    return element("li", f"{notice.path}: {notice.error}")


def _configuration(configuration: spool_pb2.Configuration) -> Html:
    lines = [element("li", element("span", warning, class_="warn")) for warning in configuration.warnings]
    if configuration.refusal:
        refusal = f"The last reload was refused, the old configuration stays: {configuration.refusal}"
        lines.insert(0, element("li", element("span", refusal, class_="bad")))
    return element("ul", *lines)


def _processes(herd: Herd, heartbeats: Heartbeats) -> Html:
    children = [child for _, child in sorted(herd.children.items())]
    wrong = [child for child in children if is_failing(child) or is_silent(child, heartbeats)]
    well = len(children) - len(wrong)
    counted = f"{well} of {len(children)} running" if children else "none known"
    head = ("Process", "State", "Process id", "Started", "Restarts", "Last exit")
    rows = (_process(child, heartbeats) for child in sorted(children, key=lambda child: child not in wrong))
    shown = table("Processes of this instance", head, rows) if children else Html()
    line = element(
        "summary", element("h2", "Processes"), " ", element("span", counted, class_="bad" if wrong else "good")
    )
    return element("section", element("details", line, shown, open=bool(wrong)), id=PROCESSES)


def _process(child: spool_pb2.Child, heartbeats: Heartbeats) -> Sequence[str]:
    wrong = is_failing(child) or is_silent(child, heartbeats)
    state = f"{child.state}, no heartbeat" if is_silent(child, heartbeats) else child.state
    return (
        child.name,
        element("span", state, class_="bad" if wrong else "good"),
        str(child.pid or ""),
        timestamp(child.started_timestamp_seconds) if child.started_timestamp_seconds else "",
        ", ".join(f"{number} by {cause}" for cause, number in sorted(child.restarts.items()) if number) or "0",
        child.last_exit,
    )
