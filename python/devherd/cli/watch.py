"""A view that keeps itself up to date until it is interrupted."""

import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

PERIOD_SECONDS = 1.0


def watch(console: Console, look: Callable[[], RenderableType]) -> int:
    """Show what `look` returns, again every second: in place on a terminal, one below the other elsewhere.

    Ends by KeyboardInterrupt, or with what `look` raises.
    """
    if not console.is_terminal:
        while True:
            console.print(look())
            console.file.flush()
            time.sleep(PERIOD_SECONDS)
    live = Live(look(), console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
    try:  # not `with`: an interrupt while it starts must restore the terminal, too
        live.start(refresh=True)
        while True:
            time.sleep(PERIOD_SECONDS)
            live.update(look(), refresh=True)
    finally:
        live.stop()
