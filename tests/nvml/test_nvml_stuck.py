"""NVML that hangs in the kernel: its library is a FUSE file whose reads hang, so that nothing can end who loads it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from not_tested import not_tested
from nvml_host import PROCESS, until

from devherd.scanner.side_files import SourceRequests
from devherd.settings import Settings
from devherd.sources.nvml import session as nvml_answer
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

HANGING_FILE = Path(__file__).parents[1] / "faults" / "hanging_file.py"
FUSE = "unshare --user --map-root-user --mount true && test -w /dev/fuse"


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


def test_a_process_that_nothing_can_end_gives_up_and_is_there_until_the_kernel_lets_it_go(library, tmp_path):
    """The answer says that NVML hangs; as long as the process is there, the supervisor starts no other in its place."""
    root, server = library
    settings = Settings(run_dir=tmp_path / "run")
    settings.run_dir.mkdir()
    request = {"driver_root": str(root), "patience_seconds": 0.1}
    SourceRequests(settings).publish({"nvml": json.dumps(request)})
    enter = ["nsenter", f"--target={server.pid}", "--user", "--mount", "--preserve-credentials", "--wdns=/"]

    def answer() -> nvml_answer.Answer:
        return nvml_answer.read_answer(settings.nvml_answer_file)

    tell(server, "hang")
    with subprocess.Popen([*enter, sys.executable, "-c", PROCESS, str(settings.run_dir), ""]) as asking:
        try:
            until(lambda: answer().failures, "it gives up")
            assert "it hangs" in str(answer().problem)
            asking.kill()
            time.sleep(0.5)
            assert asking.poll() is None
        finally:
            tell(server, "flow")
        asking.wait(30)
    assert (answer().failures, answer().asking) == (1, None)
