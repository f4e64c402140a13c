"""Many devices fail at one moment: the kubelet gets one list of each resource, not one a device."""

import pytest

from devherd.health.cordon import Cordons
from devherd.inventory import key_of
from devherd.proto import spool_pb2
from devherd.spool import read_all

NAMES = [f"example.com/many-{number}" for number in range(4)]
COUNT = 250
CONFIG = {"health": {"poll": "200ms"}, "simulated": [{"name": name, "count": COUNT} for name in NAMES]}


@pytest.mark.on("generic", CONFIG)
async def test_a_thousand_devices_that_fail_at_once_are_one_list_a_resource(testbed):
    """Each list costs the kubelet a checkpoint and an fsync. So it is when they come back."""
    for name in NAMES:
        await testbed.kubelet.until_allocatable(name, COUNT, within=60)
    published = dict(read_all(testbed.settings.resources_directory, spool_pb2.Resource)).values()
    keys = [key_of(device) for resource in published for device in resource.devices]
    cordons = Cordons(testbed.settings.findings_directory)
    assert len(keys) == len(NAMES) * COUNT

    mark = testbed.kubelet.events.mark()
    for lists, healthy in enumerate((0, COUNT), 1):
        with cordons.changing() as changes:
            for key in keys:
                changes.uncordon(key) if healthy else changes.cordon(key, "all", "test")
        for name in NAMES:
            await testbed.kubelet.until_allocatable(name, healthy, within=60)

        assert [len(testbed.kubelet.events.since(mark, "list", name)) for name in NAMES] == [lists] * len(NAMES)
