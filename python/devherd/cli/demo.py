"""Show devherd at work: discovery, allocation, a device failing and recovering, a killed child, a kubelet restart.

Everything is simulated and in a temporary directory: no hardware, no cluster, nothing on this machine changes.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from devherd_sim.testbed import Testbed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("--keep", action="store_true", help="keep everything running afterwards, until Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Play the demo; exit code 0 when every step has succeeded."""
    # Below /tmp whatever TMPDIR is: the path of a socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix=f"devherd-demo-{os.getpid()}-", dir="/tmp") as directory:
        asyncio.run(_play(Path(directory), keep=arguments.keep))
    return 0


async def _play(directory: Path, *, keep: bool) -> None:
    from devherd.cli.tables import console as make_console
    from devherd_sim import demo
    from devherd_sim.testbed import Testbed

    console = make_console()
    testbed = Testbed(directory, demo.NODE, demo.CONFIG)
    try:
        await demo.Demo(testbed, console).play()
        if keep:
            await _stay(testbed, console)
    finally:
        await testbed.stop_herd()
        await testbed.kubelet.stop(clean=True)


async def _stay(testbed: "Testbed", console: "Console") -> None:
    run_dir, kubelet_dir = testbed.settings.run_dir, testbed.settings.kubelet_dir
    console.print(
        f"\nStill running. Look at it from another terminal, and end it with Ctrl-C:\n"
        f"  page    http://{testbed.settings.listen}/\n"
        f"  status  devherd status --run-dir {run_dir}\n"
        f"  ctl     devherd ctl --run-dir {run_dir} status\n"
        f"  node    {testbed.settings.host_root}\n"
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
