"""The checkpoint's format is the kubelet's, to the last bit of the checksum; what is wrong with one is found."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet import checkpoint
from devherd_sim.kubelet.pod import Allocation, Container

# Written by the marshalling code of Kubernetes 1.36.3.
OF_A_KUBELET = Path(__file__).with_name("kubelet_checkpoints.txt").read_text(encoding="utf-8").splitlines()

ENTRY = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r",'
    b'"DeviceIDs":%s,"AllocResp":%s}]},"Checksum":1}'
)

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-./ü", min_size=1, max_size=12)
responses = st.builds(api.ContainerAllocateResponse, envs=st.dictionaries(names, names, max_size=3))
by_node = st.dictionaries(st.integers(-1, 70), st.lists(names, min_size=1, max_size=4, unique=True), max_size=3)


@st.composite
def allocations(draw):
    """Any container's devices, in the order that a checkpoint keeps."""
    nodes = {node: tuple(sorted(ids)) for node, ids in sorted(draw(by_node).items())}
    ids = tuple(sorted({device_id for ids in nodes.values() for device_id in ids}))
    return Allocation(Container.of_uid(draw(names), draw(names)), draw(names), ids, draw(responses), nodes)


def by_key(allocation):
    """What a kubelet knows an allocation by."""
    return allocation.container.uid, allocation.container.name, allocation.resource


@pytest.mark.parametrize("written", OF_A_KUBELET)
def test_the_checksum_is_the_kubelets(written):
    """Nil differs from empty, keys are in order of numbers, strings stay as they are."""
    stored = json.loads(written)
    assert checkpoint.checksum(stored["Data"]) == stored["Checksum"]


@given(st.lists(allocations(), unique_by=by_key, max_size=4), st.dictionaries(names, st.sets(names), max_size=4))
def test_what_is_written_is_read_again(held, registered):
    """And is the same, byte for byte, whatever order it was written from."""
    content = checkpoint.encode(held, registered)
    read = checkpoint.decode(content)
    assert list(read.allocations) == sorted(held, key=by_key)
    assert read.registered == {resource: tuple(sorted(ids)) for resource, ids in registered.items()}
    assert checkpoint.encode(reversed(read.allocations), read.registered) == content


@given(st.data())
def test_a_changed_byte_is_found_out(data):
    """Or changes nothing that counts: the order of keys and white space do not."""
    content = bytearray(checkpoint.encode([], {"example.com/gpu": ["a", "b"], "example.com/nic": []}))
    index = data.draw(st.integers(0, len(content) - 1))
    content[index] = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[index]))
    try:
        read = checkpoint.decode(bytes(content))
    except checkpoint.CheckpointError:
        return
    assert read.registered == {"example.com/gpu": ("a", "b"), "example.com/nic": ()}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"Data":7,"Checksum":1}',
        b'{"Data":{"PodDeviceEntries":[7]},"Checksum":1}',
        b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        ENTRY % (b'["x"]', b'""'),
        ENTRY % (b"{}", b'"?"'),
    ],
)
def test_what_is_no_checkpoint_is_refused(content):
    """Torn, foreign, of an older version, with a wrong checksum."""
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.decode(content)


def test_a_file_is_replaced_as_a_whole_in_a_directory_made_anew(tmp_path):
    """And nothing is left beside it, also when it cannot be replaced."""
    directory = tmp_path / "gone" / "device-plugins"
    assert checkpoint.read(tmp_path) is None
    for content in (b"one", b"two"):
        checkpoint.write(directory, content)
        assert checkpoint.read(directory) == content
    (directory / checkpoint.NAME).unlink()
    (directory / checkpoint.NAME / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        checkpoint.write(directory, b"three")
    assert [path.name for path in directory.iterdir()] == [checkpoint.NAME]
