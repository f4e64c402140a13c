"""A view that keeps itself up to date until it is interrupted."""

import time
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from devherd.cli.inventory_table import show

PERIOD_SECONDS = 1.0


class Fitted:
    """As much of something as the screen has lines for; the last one says how many more there are."""

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
    """Show what `look` returns, again every second: in place on a terminal, in blocks with the time elsewhere.

    Ends by KeyboardInterrupt, or with what `look` raises.
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
