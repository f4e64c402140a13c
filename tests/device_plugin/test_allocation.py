"""Device ids → what a container gets."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.device_plugin.allocation import RefusedError, container_response
from devherd.device_plugin.snapshot import Snapshot
from devherd.proto import spool_pb2

PATHS = st.sampled_from(["/dev/a", "/dev/b", "/dev/c"])
NODES = st.builds(
    spool_pb2.Node, host_path=PATHS, container_path=PATHS, permissions=st.sampled_from(["r", "rw", "mrw", "w"])
)
MOUNTS = st.builds(spool_pb2.Mount, host_path=PATHS, container_path=PATHS, read_only=st.booleans())
NO_REASONS = st.just([])
TEXTS = st.dictionaries(st.sampled_from(["A", "B", "C"]), st.sampled_from(["1", "2", "3"]), max_size=3)


@st.composite
def resources(draw, reasons=NO_REASONS):
    """A resource of up to six devices that share nodes, mounts, names and values freely."""
    ids = draw(st.lists(st.text("abc0123456789", min_size=1, max_size=4), unique=True, min_size=1, max_size=6))
    devices = [
        spool_pb2.ListedDevice(
            id=device_id,
            reasons=draw(reasons),
            edits=spool_pb2.Edits(
                nodes=draw(st.lists(NODES, max_size=4)),
                mounts=draw(st.lists(MOUNTS, max_size=4)),
                envs=draw(TEXTS),
                annotations=draw(TEXTS),
                cdi_devices=draw(st.lists(st.sampled_from(["v/c=1", "v/c=2", "v/c=3"]), max_size=3)),
            ),
        )
        for device_id in ids
    ]
    return spool_pb2.Resource(name="example.com/gpu", devices=devices)


@given(resources(), st.data())
def test_a_container_gets_everything_of_its_devices_and_nothing_twice(resource, data):
    """Nodes, mounts, names and keys are those of the devices asked for, each once."""
    asked = data.draw(st.lists(st.sampled_from([device.id for device in resource.devices]), min_size=1))
    devices = [device for device in resource.devices if device.id in asked]
    response = container_response(Snapshot(resource), asked)

    nodes = [(node.host_path, node.container_path) for node in response.devices]
    assert len(nodes) == len(set(nodes))
    assert set(nodes) == {(node.host_path, node.container_path) for device in devices for node in device.edits.nodes}
    mounts = [(mount.host_path, mount.container_path) for mount in response.mounts]
    assert len(mounts) == len(set(mounts))
    assert set(mounts) == {
        (mount.host_path, mount.container_path) for device in devices for mount in device.edits.mounts
    }
    assert set(response.envs) == {key for device in devices for key in device.edits.envs}
    assert set(response.annotations) == {key for device in devices for key in device.edits.annotations}
    names = [device.name for device in response.cdi_devices]
    assert names == list(dict.fromkeys(name for device in devices for name in device.edits.cdi_devices))


@given(resources(), st.data())
def test_the_order_of_the_ids_does_not_change_the_answer(resource, data):
    """The kubelet sends a set: two pods with the same devices get the same container."""
    ids = [device.id for device in resource.devices]
    first, second = data.draw(st.permutations(ids)), data.draw(st.permutations(ids))
    snapshot = Snapshot(resource)
    assert container_response(snapshot, first) == container_response(snapshot, [*second, *second])


@given(resources(), st.data())
def test_one_device_alone_gets_what_the_scan_lists_for_it(resource, data):
    """What `devherd scan` shows of a device is what Allocate answers."""
    device = data.draw(st.sampled_from(list(resource.devices)))
    response = container_response(Snapshot(resource), [device.id])
    assert dict(response.envs) == dict(device.edits.envs)
    assert dict(response.annotations) == dict(device.edits.annotations)
    permitted = {(node.host_path, node.container_path): set() for node in device.edits.nodes}
    for node in device.edits.nodes:
        permitted[node.host_path, node.container_path] |= set(node.permissions)
    assert permitted == {(node.host_path, node.container_path): set(node.permissions) for node in response.devices}


@given(resources(reasons=st.lists(st.sampled_from(["gone", "xid"]), unique=True, max_size=2)), st.data())
def test_ids_that_are_unknown_or_unhealthy_are_refused_by_name(resource, data):
    """Exactly the requests with a bad id fail, with the status that says which kind of bad."""
    ids = [device.id for device in resource.devices]
    asked = data.draw(st.lists(st.sampled_from([*ids, "no-such"]), min_size=1))
    reasons = {device.id: list(device.reasons) for device in resource.devices}
    bad = [device_id for device_id in asked if reasons.get(device_id, ["unknown"])]
    if not bad:
        container_response(Snapshot(resource), asked)
        return
    with pytest.raises(RefusedError) as refusal:
        container_response(Snapshot(resource), asked)
    assert repr(bad[0]) in str(refusal.value)
    if bad[0] in ids:
        assert refusal.value.status is grpc.StatusCode.FAILED_PRECONDITION
        assert all(reason in str(refusal.value) for reason in reasons[bad[0]])
    else:
        assert refusal.value.status is grpc.StatusCode.INVALID_ARGUMENT


def test_values_that_differ_are_joined_with_commas():
    """Two GPUs of one container are both visible in it."""
    devices = [
        spool_pb2.ListedDevice(id=number, edits=spool_pb2.Edits(envs={"VISIBLE": f"uuid-{number}", "MODE": "all"}))
        for number in ("2", "10")
    ]
    response = container_response(Snapshot(spool_pb2.Resource(devices=devices)), ["10", "2"])
    assert dict(response.envs) == {"VISIBLE": "uuid-2,uuid-10", "MODE": "all"}


def test_a_shared_node_has_what_any_device_permits_and_a_shared_mount_is_writable_if_one_needs_it():
    """Devices that share a control node do not take each other's rights."""
    devices = [
        spool_pb2.ListedDevice(
            id=str(number),
            edits=spool_pb2.Edits(
                nodes=[spool_pb2.Node(host_path="/dev/ctl", container_path="/dev/ctl", permissions=permissions)],
                mounts=[spool_pb2.Mount(host_path="/run/x", container_path="/run/x", read_only=read_only)],
            ),
        )
        for number, (permissions, read_only) in enumerate([("r", True), ("rw", False)])
    ]
    response = container_response(Snapshot(spool_pb2.Resource(devices=devices)), ["0", "1"])
    assert [node.permissions for node in response.devices] == ["rw"]
    assert [mount.read_only for mount in response.mounts] == [False]


def test_more_than_one_shared_device_is_refused_where_that_is_configured():
    """A pod that asks for two replicas would think it had two devices."""
    devices = [spool_pb2.ListedDevice(id="gpu", replicas=3)]
    snapshot = Snapshot(
        spool_pb2.Resource(name="example.com/gpu.shared", devices=devices, fail_requests_greater_than_one=True)
    )
    assert container_response(snapshot, ["gpu::2"])
    with pytest.raises(RefusedError, match=r"2 devices of example\.com/gpu\.shared requested.*request 1") as refusal:
        container_response(snapshot, ["gpu::0", "gpu::1"])
    assert refusal.value.status is grpc.StatusCode.INVALID_ARGUMENT


def test_more_than_one_share_of_the_vendors_own_is_refused_where_that_is_configured_w4():
    """Ids such as `card0-0` are shares without being replicas."""
    devices = [spool_pb2.ListedDevice(id=f"card0-{number}") for number in range(2)]
    snapshot = Snapshot(
        spool_pb2.Resource(name="gpu.intel.com/xe", devices=devices, fail_requests_greater_than_one=True)
    )
    assert container_response(snapshot, ["card0-1"])
    with pytest.raises(RefusedError, match=r"2 devices of gpu\.intel\.com/xe requested.*request 1"):
        container_response(snapshot, ["card0-0", "card0-1"])


def test_whole_devices_beside_shared_ones_may_be_had_together():
    """A name may hold both; only more than one replica is refused."""
    devices = [
        spool_pb2.ListedDevice(id="gpu", replicas=3),
        spool_pb2.ListedDevice(id="a"),
        spool_pb2.ListedDevice(id="b"),
    ]
    resource = spool_pb2.Resource(name="example.com/gpu", devices=devices, fail_requests_greater_than_one=True)
    assert container_response(Snapshot(resource), ["a", "b"])
    with pytest.raises(RefusedError):
        container_response(Snapshot(resource), ["a", "gpu::1"])


def test_json_objects_of_several_devices_become_one():
    """As PCIDEVICE_…_INFO of sriov-network-device-plugin has every function of the container; lists stay lists."""
    devices = [
        spool_pb2.ListedDevice(
            id=name, edits=spool_pb2.Edits(envs={"INFO": f'{{"{name}":{{"x":"1,2"}}}}', "LIST": name, "SAME": "{}"})
        )
        for name in ("a", "b")
    ]
    response = container_response(Snapshot(spool_pb2.Resource(devices=devices)), ["a", "b"])
    assert dict(response.envs) == {"INFO": '{"a":{"x":"1,2"},"b":{"x":"1,2"}}', "LIST": "a,b", "SAME": "{}"}
