"""NVML that hangs in the kernel: its library is a FUSE file whose reads hang, so that nothing can end who loads it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from not_tested import not_tested
from nvml_host import until

from devherd.config import Config
from devherd.sim.node.nvidia import NvidiaSpec
from devherd.sim.node.simulated_node import SimulatedNode
from devherd.sim.node.spec import NodeSpec

HANGING_FILE = Path(__file__).parents[1] / "faults" / "hanging_file.py"
FUSE = "unshare --user --map-root-user --mount true && test -w /dev/fuse"
SCANS = """
import json, sys
from devherd._native import Scanner
scanner = Scanner(*sys.argv[1:])
while sys.stdin.readline():
    scan = scanner.scan()
    told = [problem.error for problem in scan.problems if problem.path == "libnvidia-ml.so.1"]
    print(json.dumps([len(scan.devices), told]), flush=True)
"""


@pytest.fixture
def library(tmp_path):
    """The node's root and the process that serves its library, which is told `hang` and `flow`."""
    if subprocess.run(["sh", "-c", FUSE], capture_output=True, check=False).returncode:
        not_tested("no right to mount FUSE files in a namespace")
    node = SimulatedNode.create(tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(gpus=1)))
    file = node.root / "usr/lib64/libnvidia-ml.so.1"
    file.parent.mkdir(parents=True)
    file.touch()
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, HANGING_FILE, file, "no library"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "mounted\n"
        yield node.root, server
        server.kill()


def tell(process: subprocess.Popen[str], order: str) -> str:
    """One line to a process, and its answer."""
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_an_attempt_that_nothing_can_end_is_abandoned_and_the_only_one(library):
    """Scans go on, no other attempt joins it, and when it comes back NVML is asked again."""
    root, server = library
    config = Config.model_validate({"host_root": root, "scan": {"probe_timeout": "200ms"}})
    enter = ["nsenter", f"--target={server.pid}", "--user", "--mount", "--preserve-credentials", "--wdns=/"]
    command = [*enter, sys.executable, "-c", SCANS, str(root), config.native_json()]
    tell(server, "hang")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as scanning:

        def complaint():
            devices, told = json.loads(tell(scanning, "scan"))
            assert devices == 1
            return told[0].split(" — ")[0] if told else ""

        assert complaint() == "NVML has not answered yet"
        until(lambda: complaint() == "NVML hangs in the kernel and cannot be ended", "it is abandoned")
        children = Path(f"/proc/{scanning.pid}/task")
        assert len([child for task in children.iterdir() for child in (task / "children").read_text().split()]) == 1
        tell(server, "flow")
        until(lambda: complaint() == "NVML cannot be loaded", "NVML is asked again")
        scanning.stdin.close()
