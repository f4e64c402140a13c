"""Run a server in the place of a vendor's monitor of GPUs, on its usual socket of a simulated node.

`amd-exporter` is AMD's device metrics exporter, `xpumd` Intel's daemon. Every GPU of the node is well until
`devherd sim fault DIR MONITOR ADDRESS WORD` says otherwise. It runs in the foreground until SIGTERM or SIGINT.

  devherd sim node /tmp/host --spec amd-8
  devherd sim monitor /tmp/host amd-exporter &
  devherd sim fault /tmp/host amd-exporter 0000:0a:00.0 unhealthy
  devherd sim fault /tmp/host amd-exporter 0000:0a:00.0 --clear
"""

import argparse
import signal
from pathlib import Path

from devherd.errors import ExitCode, UsageError
from devherd.simulated_host import is_simulated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    from devherd_sim.node.monitors import MONITORS

    parser.add_argument("directory", metavar="DIR", type=Path, help="a node of `devherd sim node`")
    parser.add_argument("monitor", metavar="MONITOR", choices=MONITORS, help=f"choose from {', '.join(MONITORS)}")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal. Raises UsageError where there is no such node, or its socket cannot be made."""
    root: Path = arguments.directory
    if not is_simulated(root):
        raise UsageError(f"no simulated node in {root}", "it has no mark of one", "make one with `devherd sim node`")
    from devherd_sim.monitors import MonitorServer
    from devherd_sim.node.monitors import MONITORS

    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before gRPC's threads: all of them inherit it
    try:
        server = MonitorServer(root, arguments.monitor).start()
    except OSError as error:
        cure = "make the node in a directory with a shorter path"
        raise UsageError(f"cannot serve on {root}", str(error), cure) from error
    count = len(MONITORS[arguments.monitor].gpus(root))
    print(f"{arguments.monitor} listens on {server.socket}: {count} GPUs", flush=True)
    signal.sigwait(signals)
    server.stop()
    return ExitCode.DONE
