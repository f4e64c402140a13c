"""The limit of open files, which a start by systemd or a shell sets to 1 024, is no limit of the number of cards.

In the kernel's sysfs, files stay open as far as the limit allows; on a simulated node none does
(`rust/src/health/poller/tests/limits.rs`).
"""

import asyncio
import sys
from pathlib import Path

import pytest

from devherd_sim.node import faults
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
AFU_ID = "d8424dc4a4a3c413f89e433683f9040b"
FAULTS = (("fpga-errors",), ("temperature",), ("aer", "fatal 1"), ("node",))


@pytest.mark.parametrize(("cards", "limit"), [(96, 256), (1024, 1024)])
async def test_more_cards_than_the_limit_of_open_files_has_files_for_are_all_served(directory, cards, limit):
    """What does not stay open is opened at each look."""
    testbed = Testbed(directory, NodeSpec(fpga=[FpgaSpec(cards=cards, afu_ids=[AFU_ID])]))
    testbed.command = ("sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", sys.executable, "-m", "devherd")
    async with testbed:
        await testbed.kubelet.until_allocatable(RESOURCE, cards, within=60)
        scanner = await testbed.child("scanner")
        await asyncio.sleep(3)  # several polls
        assert testbed.kubelet.allocatable(RESOURCE) == cards
        for number, (fault, *value) in enumerate(FAULTS, start=1):
            port = f"dfl-port.{cards - number}"
            is_of_port = fault in ("fpga-errors", "node")
            faults.inject(testbed.node, fault, port if is_of_port else testbed.node.pci_function_of(port).name, *value)
            await testbed.kubelet.until_allocatable(RESOURCE, cards - number, within=60)
        assert "oo many open files" not in testbed.log
        assert open_files(scanner.pid) < limit


def open_files(pid):
    """How many files a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
