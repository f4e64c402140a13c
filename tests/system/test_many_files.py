"""The limit of open files, which a start by systemd or a shell sets to 1 024, is no limit of the number of cards."""

import asyncio
import sys
from pathlib import Path

import pytest

from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

CARDS, LIMIT = 96, 256
RESOURCE = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
AFU_ID = "d8424dc4a4a3c413f89e433683f9040b"


@pytest.mark.parametrize("which", ["-S -n", "-n"])
async def test_more_cards_than_the_limit_of_open_files_has_files_for_are_all_served(directory, which):
    """The scanner raises its soft limit as far as the hard one permits; where that is too low, it opens them anew."""
    testbed = Testbed(directory, NodeSpec(fpga=[FpgaSpec(cards=CARDS, afu_ids=[AFU_ID])]))
    testbed.command = ("sh", "-c", f'ulimit {which} {LIMIT} && exec "$@"', "sh", sys.executable, "-m", "devherd")
    async with testbed:
        await testbed.kubelet.until_allocatable(RESOURCE, CARDS, within=60)
        scanner = await testbed.child("scanner")
        if which == "-S -n":
            await testbed.until(lambda: open_files(scanner.pid) > LIMIT + CARDS, "it has their files open")
        await asyncio.sleep(3)  # several polls
        assert "oo many open files" not in testbed.log
        assert testbed.kubelet.allocatable(RESOURCE) == CARDS
        assert which == "-S -n" or open_files(scanner.pid) < LIMIT


def open_files(pid):
    """How many files a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
