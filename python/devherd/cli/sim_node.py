"""Write a simulated host tree below a directory: sys/, proc/ and dev/ as the kernels lay them out.

A spec is the name of a preset (`--list`) or a YAML file; `--describe` explains its keys, `--schema` is for editors:

  preset: fpga-8                 # start from a preset; every section is optional and replaces the preset's
  fpga:                          # one group of equal cards, or a list of groups
    {driver: dfl, cards: 8, ports: 1, vfs: 0, numa_nodes: 2, afu_ids: [...], interface_id: ...}
  nvidia:                        # one group; `mig` and the rest by number of the GPU
    {gpus: 4, model: h100, numa_nodes: 2, gpus_a_switch: 2, nvml: true, nvlink: switch,
     mig: [null, [3g.40gb, 1g.10gb]], uninitialised: [2], excluded: [3]}
  amd:                           # as with fpga: one group or a list
    {model: mi300x, cards: 8, addresses: ["0000:19:00.0", ...], numa_nodes: 2, hives: 1, p2p: true,
     compute_partition: CPX, memory_partition: NPS4, xcp_name: amdgpu_xcp_, first_xcp: 0, display: false,
     driver: amdgpu, vfs: 0}
  intel_gpu: {driver: xe, cards: 2, vfs: 7, numa_nodes: 2, device_id: "0xe20b"}
  xilinx_fpga:
    {cards: 2, devices: 1, vendor: "0x10ee", vbnv: xilinx_u200_xdma_201830_2, timestamp: "1561465320",
     management: true, qdma: false, serial_number: true, numa_nodes: 2}
  rdma: {cards: 2, vfs: 4, numa_nodes: 2, link_layer: Ethernet}
  usb: [{vendor: "0403", product: "6001", serial: A50285BI, function: serial}]
  devices: [{path: /dev/kvm, number: "10:232", subsystem: misc}]
  tree: |                        # anything else, one entry a line, put on top of the rest
    sys/class/fpga_region/foreign/
    run/x.sock == a file without newline
    dev/ttyS0 char 4:64

Device nodes are real ones where mknod is permitted and empty files otherwise.
"""

import argparse
import json
import sys
from pathlib import Path

from devherd.errors import ExitCode, UsageError

DEFAULT = "fpga-1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", type=Path, help="where to write; empty, new or an earlier node"
    )
    parser.add_argument(
        "--spec", metavar="SPEC", help="preset or YAML file (default: fpga-1, where there is no node yet)"
    )
    parser.add_argument("--list", action="store_true", help="list the presets and exit")
    parser.add_argument("--describe", action="store_true", help="explain each key of a spec and exit")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec and exit")


def run(arguments: argparse.Namespace) -> int:
    """Write the node. Raises UsageError for a bad spec or a directory that holds something else."""
    if arguments.list:
        from devherd_sim.node.presets import PRESETS

        for name, preset in PRESETS.items():
            print(f"{name:<18} {preset.summary}")
        return ExitCode.DONE
    if arguments.describe or arguments.schema:
        from devherd_sim.node import spec_schema

        print("\n".join(spec_schema.described()) if arguments.describe else json.dumps(spec_schema.schema(), indent=2))
        return ExitCode.DONE
    if arguments.directory is None:
        raise UsageError(
            "no directory given", "a simulated node is a directory", "try `devherd sim node /tmp/host --spec fpga-8`"
        )
    from devherd.config import ConfigError

    try:
        _write(arguments.directory, arguments.spec)
    except ConfigError as error:
        for each in error.errors:
            print(f"devherd: {each}", file=sys.stderr)
        return ExitCode.USAGE
    return ExitCode.DONE


def _write(directory: Path, given: str | None) -> None:
    from devherd.simulated_host import is_simulated
    from devherd_sim.node.load import load
    from devherd_sim.node.presets import PRESETS
    from devherd_sim.node.simulated_node import SimulatedNode

    if given is None and is_simulated(directory):
        raise UsageError(
            f"{directory} has a simulated node already", f"it would be replaced by {DEFAULT}", "say by what with --spec"
        )
    spec = given or DEFAULT
    try:
        SimulatedNode.create(directory, load(spec))
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot write a node to {directory}", why, "give a directory of your own") from error
    what = f"preset {spec}" if spec in PRESETS else spec
    print(f"wrote {what} to {directory}; now run `devherd scan --host-root {directory}`")
