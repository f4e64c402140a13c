"""Show devherd at work: discovery, allocation, a device failing and recovering, a killed child, a kubelet restart.

Everything is simulated and in a temporary directory: no hardware, no cluster, nothing on this machine changes.
"""

import argparse
import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from devherd.sim.stage import Stage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--keep", action="store_true", help="stay up afterwards, to be looked at, until Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Play the demo; exit code 0 when every act came to its end."""
    # Below /tmp whatever TMPDIR says: the path of a socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="devherd-demo-", dir="/tmp") as directory:
        asyncio.run(_play(Path(directory), keep=arguments.keep))
    return 0


async def _play(directory: Path, *, keep: bool) -> None:
    from devherd.cli.inventory_table import console as make_console
    from devherd.sim import demo
    from devherd.sim.stage import Stage

    console = make_console()
    stage = Stage(directory, demo.NODE, demo.CONFIG)
    try:
        await demo.Demo(stage, console).play()
        if keep:
            await _stay(stage, console)
    finally:
        await stage.stop_herd()
        await stage.kubelet.stop(clean=True)


async def _stay(stage: "Stage", console: "Console") -> None:
    run_dir, kubelet_dir = stage.settings.run_dir, stage.settings.kubelet_dir
    console.print(
        f"\nStill up. Look at it from another terminal, and end it with Ctrl-C:\n"
        f"  page    http://{stage.settings.listen}/\n"
        f"  status  devherd status --run-dir {run_dir}\n"
        f"  ctl     devherd ctl --run-dir {run_dir} status\n"
        f"  node    {stage.settings.host_root}\n"
        f"  kubelet {kubelet_dir}",
        highlight=False,
        markup=False,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    with contextlib.suppress(asyncio.CancelledError):
        await ended.wait()
