"""`devherd sim node|fault|monitor`: a simulated host, its faults, and the vendors' monitors beside it."""

import argparse
import json
import signal
import sys
from pathlib import Path

from devherd.config.resolved import is_simulated
from devherd.errors import ExitCode, UsageError

DEFAULT = "fpga-1"


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", type=Path, help="directory to write to: empty, new or an earlier node"
    )
    parser.add_argument(
        "--spec", metavar="SPEC", help="preset or YAML file (default: fpga-1, where there is no node yet)"
    )
    parser.add_argument("--list", action="store_true", help="list the presets and exit")
    parser.add_argument("--describe", action="store_true", help="explain each key of a spec and exit")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec and exit")


def run_node(arguments: argparse.Namespace) -> int:
    """Write a simulated host tree below a directory: sys/, proc/ and dev/ as the kernels lay them out.

    A spec is the name of a preset (`--list`) or a YAML file; `--describe` explains its keys, `--schema` is for editors.
    Its sections:

      preset: fpga-8              # to start from; a section replaces the preset's
      fpga:                       # one group of equal cards, or a list of groups
        {driver: dfl, cards: 8, ports: 1, vfs: 0, numa_nodes: 2,
         afu_ids: [...], interface_id: ...}
      nvidia:                     # one group; `mig` and the rest by the GPU's number
        {gpus: 4, model: h100, numa_nodes: 2, gpus_a_switch: 2, nvml: true,
         nvlink: switch, mig: [null, [3g.40gb, 1g.10gb]],
         uninitialised: [2], excluded: [3], vgpu_types: [1133, 0]}
      amd:                        # as with fpga: one group or a list
        {model: mi300x, cards: 8, addresses: ["0000:19:00.0", ...], numa_nodes: 2,
         hives: 1, p2p: true, compute_partition: CPX, memory_partition: NPS4,
         xcp_name: amdgpu_xcp_, first_xcp: 0, display: false,
         driver: amdgpu, vfs: 0}
      intel_gpu:
        {driver: xe, cards: 2, vfs: 7, vf_driver: own, numa_nodes: 2,
         device_id: "0xe20b"}
      xilinx_fpga:
        {cards: 2, devices: 1, vendor: "0x10ee", vbnv: xilinx_u200_xdma_201830_2,
         timestamp: "1561465320", management: true, qdma: false,
         serial_number: true, numa_nodes: 2}
      rdma:
        {cards: 2, vfs: 4, vf_driver: vfio-pci, numa_nodes: 2,
         link_layer: Ethernet}
      usb: [{vendor: "0403", product: "6001", serial: A50285BI, function: serial}]
      devices: [{path: /dev/kvm, number: "10:232", subsystem: misc}]
      tree: |                     # anything else, an entry a line, on top of the rest
        sys/class/fpga_region/foreign/
        run/x.sock == a file without newline
        dev/ttyS0 char 4:64

    Device nodes are real ones where mknod is permitted and empty files otherwise.
    """
    if arguments.list:
        from devherd_sim.node.presets import PRESETS

        for name, preset in PRESETS.items():
            print(f"{name:<18} {preset.summary}")
        return ExitCode.DONE
    if arguments.describe or arguments.schema:
        from devherd_sim.node.load import described, schema

        print("\n".join(described()) if arguments.describe else json.dumps(schema(), indent=2))
        return ExitCode.DONE
    if arguments.directory is None:
        raise UsageError(
            "no directory given", "a simulated node is a directory", "try `devherd sim node /tmp/host --spec fpga-8`"
        )
    from devherd.config.errors import ConfigError

    try:
        _write(arguments.directory, arguments.spec)
    except ConfigError as error:
        for each in error.errors:
            print(f"devherd: {each}", file=sys.stderr)
        return ExitCode.USAGE
    return ExitCode.DONE


def _write(directory: Path, given: str | None) -> None:
    from devherd.config.resolved import is_simulated
    from devherd_sim.node.load import load
    from devherd_sim.node.presets import PRESETS
    from devherd_sim.node.simulated_node import SimulatedNode

    if given is None and is_simulated(directory):
        raise UsageError(
            f"{directory} has a simulated node already",
            f"it would be replaced by {DEFAULT}",
            "give --spec to replace it",
        )
    spec = given or DEFAULT
    try:
        SimulatedNode.create(directory, load(spec))
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot write a node to {directory}", why, "give a directory of your own") from error
    what = f"preset {spec}" if spec in PRESETS else spec
    print(f"wrote {what} to {directory}; now run `devherd scan --host-root {directory}`")


def add_fault_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    from devherd_sim.node.faults import FAULTS

    parser.add_argument("directory", metavar="DIR", type=Path, help="a node of `devherd sim node`")
    parser.add_argument("fault", metavar="FAULT", choices=FAULTS, help="the fault: see above")
    parser.add_argument("at", metavar="AT", help="where: a PCI address, a port, a node")
    parser.add_argument("value", metavar="VALUE", nargs="?", default="", help="the fault's value, if it has one")
    parser.add_argument("--clear", action="store_true", help="clear the fault")
    lines = (
        f"  {name:<12} {fault.summary}\n{'':<15}at: {fault.at}"
        + (f"; value: {fault.value_help}" if fault.value_help else "")
        + (f" (default: {fault.value})" if fault.value else "")
        for name, fault in FAULTS.items()
    )
    parser.description = f"{parser.description}\n\nFaults:\n" + "\n".join(lines)


def run_fault(arguments: argparse.Namespace) -> int:
    """Inject a fault into a simulated node, or remove it with --clear; devherd sees it as on a real host."""
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


def add_monitor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    from devherd_sim.node.faults.services import MONITORS

    parser.add_argument("directory", metavar="DIR", type=Path, help="a node of `devherd sim node`")
    parser.add_argument("monitor", metavar="MONITOR", choices=MONITORS, help=f"choose from {', '.join(MONITORS)}")


def run_monitor(arguments: argparse.Namespace) -> int:
    """Run a server in place of a vendor's GPU monitor, on its default socket on a simulated node.

    `amd-exporter` is AMD's device metrics exporter, `xpumd` Intel's daemon. Every GPU of the node is healthy until
    `devherd sim fault DIR MONITOR ADDRESS WORD` changes that. It runs in the foreground until SIGTERM or SIGINT.

      devherd sim node /tmp/host --spec amd-8
      devherd sim monitor /tmp/host amd-exporter &
      devherd sim fault /tmp/host amd-exporter 0000:0a:00.0 unhealthy
      devherd sim fault /tmp/host amd-exporter 0000:0a:00.0 --clear
    """
    root: Path = arguments.directory
    if not is_simulated(root):
        raise UsageError(f"no simulated node in {root}", "it has no mark of one", "make one with `devherd sim node`")
    from devherd_sim.monitors import MonitorServer
    from devherd_sim.node.faults.services import MONITORS

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
