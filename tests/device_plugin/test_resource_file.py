"""The spool file of a resource, as its child reads it, and what the kubelet gets of it."""

import asyncio
import shutil

import pytest
from descriptors import descriptors
from hypothesis import given
from hypothesis import strategies as st
from plugin_host import RESOURCE, device

from devherd import spool
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.service import Pacing
from devherd.device_plugin.snapshot import Snapshot
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.watch import Watch


@pytest.fixture
def file(host):
    """A file of one device, read."""
    host.write(device("0"))
    resource_file = ResourceFile(host.resources, spool.key_of(RESOURCE))
    resource_file.look()
    return resource_file


def ids(resource_file):
    """The ids in the list for the kubelet."""
    return [listed.ID for listed in resource_file.latest.device_list.devices]


def test_a_file_replaced_is_read_and_one_that_says_the_same_changes_nothing(host, file):
    """The scanner renames files into place, also without need."""
    before = file.latest
    file.path.write_bytes(file.path.read_bytes())
    file.look()
    assert file.latest is before
    host.write(device("0"), device("1"))
    file.look()
    assert ids(file) == ["0", "1"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xff\xff",
        spool_pb2.Resource(name="example.com/other").SerializeToString(),
        spool_pb2.ResourceState(streams=3, detail="x").SerializeToString(),
    ],
)
def test_a_torn_or_foreign_file_leaves_the_last_snapshot_in_force(file, content, caplog):
    """One line says so, however often it is looked at."""
    file.path.write_bytes(content)
    for _ in range(3):
        file.look()
    assert ids(file) == ["0"]
    assert caplog.text.count("the last good one stays in force") == 1


def test_a_deleted_file_empties_the_list_and_a_new_one_fills_it(host, file):
    """The resource is on its way out, and may come back."""
    file.path.unlink()
    file.look()
    assert file.latest.name == RESOURCE
    assert ids(file) == []
    host.write(device("0"))
    file.look()
    assert ids(file) == ["0"]


def test_a_run_directory_swept_away_says_nothing_about_devices(host, file):
    """Only the scanner deletes a resource's file, and it leaves the directory."""
    shutil.rmtree(host.resources)
    file.look()
    assert ids(file) == ["0"]


def test_an_unreadable_file_leaves_the_last_snapshot_in_force(file):
    """A directory in its place is as good as anything that cannot be read."""
    file.path.unlink()
    file.path.mkdir()
    file.look()
    assert ids(file) == ["0"]


def test_changes_wake_those_who_wait(host):
    """A child that starts before its file waits for it."""

    async def scenario():
        resource_file = ResourceFile(host.resources, spool.key_of(RESOURCE))
        waiting = asyncio.create_task(resource_file.loaded())
        await asyncio.sleep(0)
        resource_file.look()
        await asyncio.sleep(0)
        assert not waiting.done()
        host.write(device("0"))
        resource_file.look()
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


@given(st.lists(st.lists(st.integers(0, 7), max_size=2, unique=True), min_size=1, max_size=6))
def test_a_device_whose_numa_node_is_unknown_may_be_on_each(numa_nodes):
    """Others keep theirs. Without any the resource is not aligned, and no device has an empty TopologyInfo."""
    devices = [device(str(n), numa=nodes) for n, nodes in enumerate(numa_nodes)]
    snapshot = Snapshot(spool_pb2.Resource(devices=devices, processor_nodes=[0, 1]))
    listed = [
        [node.ID for node in each.topology.nodes] if each.HasField("topology") else None
        for each in snapshot.device_list.devices
    ]
    possible = sorted({0, 1}.union(*numa_nodes)) if any(numa_nodes) else None
    assert listed == [nodes or possible for nodes in numa_nodes]


def test_a_device_with_reasons_is_listed_as_unhealthy():
    """It stays in the list: a device that merely vanishes never reports its failure."""
    snapshot = Snapshot(spool_pb2.Resource(devices=[device("0"), device("1", "xid")]))
    assert [(each.ID, each.health) for each in snapshot.device_list.devices] == [("0", "Healthy"), ("1", "Unhealthy")]
    assert snapshot.healthy == {"0"}


DEVICES = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from([[], ["xid"], ["gone", "xid"]]),
        st.sampled_from([[], [0], [1, 0]]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([[], [], [], ["s10", "s9"]]),
    ),
    max_size=5,
    unique_by=lambda one: one[0],
)


def resource_of(devices, version: int = 0) -> spool_pb2.Resource:
    resource = spool_pb2.Resource(name=RESOURCE, version=version, processor_nodes=[0])
    for number, reasons, nodes, replicas, shares in devices:
        shared = [f"{number}-{share}" for share in shares]
        resource.devices.add(
            id=shared[0] if shared else str(number),
            reasons=reasons,
            numa_nodes=nodes,
            replicas=replicas,
            shares=shared,
        )
    return resource


def made_in_python(snapshot: Snapshot) -> v1beta1.ListAndWatchResponse:
    """The list by its rules: the scan core makes it of ten thousand devices in a tenth of the time."""
    known = {node for one in snapshot.resource.devices for node in one.numa_nodes}
    possible = sorted(known.union(snapshot.resource.processor_nodes)) if known else []
    response = v1beta1.ListAndWatchResponse()
    for device_id, one in snapshot.devices.items():
        each = response.devices.add(ID=device_id, health="Unhealthy" if one.reasons else "Healthy")
        for node in one.numa_nodes or possible:
            each.topology.nodes.add(ID=node)
    return response


@given(devices=DEVICES, nodes=st.lists(st.integers(0, 1023), max_size=3))
def test_the_list_is_what_its_rules_say(devices, nodes):
    """Shares and replicas in natural order, health, and the NUMA nodes that a device may be on."""
    resource = resource_of(devices)
    resource.processor_nodes.extend(nodes)
    snapshot = Snapshot(resource)
    assert snapshot.device_list == made_in_python(snapshot)
    assert snapshot.unhealthy_ids == set(snapshot.devices) - snapshot.healthy


def test_a_second_reason_is_nothing_to_tell_the_kubelet():
    """The list is the same, and a stream that has sent it sends no other."""
    first, second, third = (
        Snapshot(resource_of([(0, reasons, [0], 0, []), (1, [], [0], 0, [])], version))
        for version, reasons in enumerate([["xid"], ["gone", "xid"], []])
    )
    pacing = Pacing()
    pacing.sent(first.device_list, 0.0)
    assert pacing.seconds_until_due(second.device_list, 1.0) is None
    assert pacing.seconds_until_due(third.device_list, 1.0) == 0.0
    assert [each.health for each in third.device_list.devices] == ["Healthy", "Healthy"]


@pytest.mark.parametrize("preference", [spool_pb2.PACKED, spool_pb2.ALIGNED, spool_pb2.NONE])
def test_preferred_allocation_is_offered_unless_it_is_switched_off(preference):
    """The kubelet skips the call where nobody wants it."""
    options = Snapshot(spool_pb2.Resource(preferred=preference)).options
    assert options.get_preferred_allocation_available == (preference != spool_pb2.NONE)
    assert not options.pre_start_required


@pytest.fixture
async def watched(tmp_path):
    """A watch of the kubelet's directory with the names that it was asked about, and how often something changed."""
    plugins = tmp_path / "device-plugins"
    plugins.mkdir()
    names, changes = [], []
    files = [plugins / "kubelet.sock", plugins / "ours.sock"]
    for file in files:
        file.touch()

    def concerns(name):
        names.append(name)
        return name in {file.name for file in files}

    with Watch([], concerns, lambda: changes.append(None), shared=[plugins], files=lambda: files) as watch:
        await asyncio.sleep(0)
        yield plugins, names, changes, watch


async def told(condition):
    """Wait for it."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("not told within ten seconds")


async def test_while_its_sockets_are_there_those_of_two_hundred_other_resources_wake_nobody(watched):
    """Each resource's process has to hear of the kubelet's socket and its own: two hundred wakes for each otherwise."""
    plugins, names, changes, _ = watched
    (plugins / "of-another.sock").touch()
    (plugins / "of-another.sock").unlink()
    (plugins / "kubelet.sock").unlink()
    await told(lambda: changes)
    assert names == []
    (plugins / "of-another-again.sock").touch()
    await told(lambda: names)
    assert "of-another-again.sock" in names


@pytest.mark.parametrize("name", ["kubelet.sock", "ours.sock"])
async def test_a_socket_that_is_removed_and_made_again_is_told_each_time(watched, name):
    """A kubelet that restarts removes both."""
    plugins, names, changes, watch = watched
    for _ in range(3):
        changes.clear()
        (plugins / name).unlink()
        await told(lambda: changes)
        changes.clear()
        (plugins / name).touch()
        await told(lambda: changes)
        names.clear()
        (plugins / "of-another.sock").touch()
        (plugins / "of-another.sock").unlink()
        await asyncio.sleep(0)
        assert names == []
        assert not watch.is_blind


async def test_a_socket_that_is_replaced_at_once_is_told(watched):
    """By a rename, so that its name is never missing."""
    plugins, _, changes, _ = watched
    for _ in range(3):
        changes.clear()
        (plugins / "new").touch()
        (plugins / "new").rename(plugins / "kubelet.sock")
        await told(lambda: changes)


async def test_a_directory_that_is_made_anew_is_watched_again(watched):
    """Whether its sockets are there or not."""
    plugins, _, changes, watch = watched
    shutil.rmtree(plugins)
    await told(lambda: changes)
    assert watch.is_blind
    plugins.mkdir()
    await told(lambda: not watch.is_blind)
    changes.clear()
    (plugins / "kubelet.sock").touch()
    await told(lambda: changes)


async def test_a_process_that_may_not_watch_is_blind(tmp_path):
    """It looks by itself then."""
    with Watch([tmp_path], bool, lambda: None, may_watch=False) as watch:
        watch.add_missing()
        assert watch.is_blind


def test_a_file_that_no_descriptor_was_left_for_is_read_once_there_is_one(host, file):
    """Defect: the list of before stayed in force until the next change, which may be days away."""
    host.write(device("0"), device("1"))
    with descriptors(0):
        file.look()
        assert ids(file) == ["0"]
        assert not file.is_gone
    file.look()
    assert ids(file) == ["0", "1"]
