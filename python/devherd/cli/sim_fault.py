"""Let something happen to a simulated node, and take it back with --clear; devherd sees it as on a real host."""

import argparse
from pathlib import Path

from devherd.errors import ExitCode, UsageError
from devherd.simulated_host import is_simulated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    from devherd_sim.node.faults import FAULTS

    parser.add_argument("directory", metavar="DIR", type=Path, help="a node of `devherd sim node`")
    parser.add_argument("fault", metavar="FAULT", choices=FAULTS, help="what happens: see above")
    parser.add_argument("at", metavar="AT", help="to what it happens: a PCI address, a port, a node")
    parser.add_argument("value", metavar="VALUE", nargs="?", default="", help="what exactly, where there is a choice")
    parser.add_argument("--clear", action="store_true", help="take it back")
    lines = (
        f"  {name:<12} {fault.summary}\n{'':<15}at: {fault.at}"
        + (f"; value: {fault.value_help}" if fault.value_help else "")
        + (f" (default: {fault.value})" if fault.value else "")
        for name, fault in FAULTS.items()
    )
    parser.description = f"{parser.description}\n\nFaults:\n" + "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Inject the fault, or take it back. Raises UsageError where there is no such node, place or fault."""
    from devherd_sim.node import faults
    from devherd_sim.node.simulated_node import SimulatedNode

    root: Path = arguments.directory
    if not is_simulated(root):
        raise UsageError(f"no simulated node in {root}", "it has no mark of one", "make one with `devherd sim node`")
    act = faults.clear if arguments.clear else faults.inject
    try:
        act(SimulatedNode(root), arguments.fault, arguments.at, arguments.value)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot do that to {root}", str(error), "see `devherd sim fault --help`") from error
    return ExitCode.DONE
