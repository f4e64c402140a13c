"""A device that moves from one resource to another, with devherd whole: the kubelet is never offered it twice."""

import asyncio
import os
import signal

import pytest

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
CRYPTO_AFU = "d8424dc4a4a3c413f89e433683f9040b"
PORT, MOVING = "intel-fpga-port.0", "intel-fpga-port.1"

pytestmark = pytest.mark.on("fpga-opae-2", {"scan": {"period": "200ms"}})


def listed(testbed, name):
    """The devices of a resource's file; none without a file: a resource goes with its last device."""
    files = dict(spool.read_all(testbed.settings.resources_directory, spool_pb2.Resource))
    return {device.id for device in files[spool.key_of(name)].devices} if spool.key_of(name) in files else set()


async def until_served(testbed):
    """Each port is in its resource."""
    for name in (CRYPTO, CODEC):
        await testbed.kubelet.until_allocatable(name, 1, within=30)


async def test_a_device_waits_while_the_child_that_had_it_is_stopped(testbed):
    """For as long as the kubelet may believe the old list; no time is enough to be sure."""
    await until_served(testbed)
    child = (await testbed.child_of(CODEC)).pid
    os.kill(child, signal.SIGSTOP)
    faults.inject(testbed.node, "afu", MOVING, CRYPTO_AFU)
    await testbed.until(lambda: listed(testbed, CODEC) == set(), "it has left")

    await asyncio.sleep(2)

    assert listed(testbed, CRYPTO) == {PORT}
    assert testbed.kubelet.devices(CODEC).keys() == {MOVING}
    assert testbed.kubelet.devices(CRYPTO).keys() == {PORT}
    os.kill(child, signal.SIGCONT)
    await testbed.kubelet.until_allocatable(CRYPTO, 2, within=30)
    assert testbed.kubelet.devices(CODEC) == {}


async def test_a_device_moves_at_once_when_the_child_that_had_it_is_killed(testbed):
    """The kubelet's stream ends with the process: nothing is left that could hand it out."""
    await until_served(testbed)
    child = (await testbed.child_of(CODEC)).pid
    os.kill(child, signal.SIGSTOP)
    faults.inject(testbed.node, "afu", MOVING, CRYPTO_AFU)
    await testbed.until(lambda: listed(testbed, CODEC) == set(), "it has left")

    os.kill(child, signal.SIGKILL)

    await testbed.kubelet.until_allocatable(CRYPTO, 2, within=30)


async def test_a_device_moves_without_a_kubelet_and_when_it_comes_back_it_is_told_once(testbed):
    """Nobody has any list then."""
    await until_served(testbed)
    await testbed.kubelet.stop()
    await testbed.until(lambda: "the kubelet is away" in testbed.log, "the children wait")
    faults.inject(testbed.node, "afu", MOVING, CRYPTO_AFU)
    await testbed.until(lambda: listed(testbed, CRYPTO) == {PORT, MOVING}, "it has moved")
    await testbed.kubelet.start()
    await testbed.kubelet.until_allocatable(CRYPTO, 2, within=30)
    assert testbed.kubelet.devices(CODEC) == {}
