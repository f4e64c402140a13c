"""The limit of open files, which a start by systemd or a shell sets to 1 024, is no limit of the number of cards."""

import asyncio
import sys
from pathlib import Path

import pytest

from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

CARDS, SOFT = 96, 256


@pytest.fixture
def limited(directory):
    """A node with more cards than the soft limit has files for."""
    testbed = Testbed(directory, NodeSpec(fpga=[FpgaSpec(cards=CARDS, afu_ids=[AFU_IDS[0]])]))
    testbed.command = ("sh", "-c", f'ulimit -S -n {SOFT} && exec "$@"', "sh", sys.executable, "-m", "devherd")
    return testbed


async def test_more_cards_than_the_soft_limit_of_open_files_permits_are_all_watched(limited):
    """The scanner, which keeps their files open, alone has the hard limit."""
    async with limited as testbed:
        resource = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
        await testbed.kubelet.until_allocatable(resource, CARDS, within=60)
        scanner = await testbed.child("scanner")
        await testbed.until(lambda: open_files(scanner.pid) > SOFT + CARDS, "it has their files open")
        await asyncio.sleep(3)
        assert "Too many open files" not in testbed.log
        assert testbed.kubelet.allocatable(resource) == CARDS
        assert soft_limit(testbed.herd.pid) == SOFT


def open_files(pid):
    """How many files a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def soft_limit(pid):
    """How many it may have."""
    line = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line)
    return int(line.split()[3])
