"""Which function each child runs. What children share is imported before the forks, the rest in the child."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devherd.child import Child, ChildMain

if TYPE_CHECKING:  # pydantic is not for the supervisor
    from devherd.config import Config


@dataclass(frozen=True, slots=True)
class Programs:
    """The main functions of a herd, and what runs before there is one."""

    scanner: ChildMain
    exporter: ChildMain
    resource: ChildMain
    first_scan: "Callable[[Config], None]"
    preload: Callable[[], None]
    """Imports what resource children need and has metrics, in the supervisor."""


def _scanner(child: Child) -> int:
    from devherd.scanner import main as scanner  # noqa: PLC0415 - nobody else needs it

    return scanner.main(child)


def _exporter(child: Child) -> int:
    from devherd.exporter.main import main  # noqa: PLC0415 - nobody else needs its HTTP server

    return main(child)


def _resource(child: Child) -> int:
    from devherd.plugin.child import main  # noqa: PLC0415 - imported by _preload

    return main(child)


def _first_scan(config: "Config") -> None:
    from devherd.scanner import main as scanner  # noqa: PLC0415 - in a process of its own

    scanner.first_scan(config)


def _preload() -> None:
    import devherd.plugin.child  # noqa: PLC0415, F401 - not before it is known where counters are kept


DEVHERD = Programs(_scanner, _exporter, _resource, _first_scan, _preload)
