"""The spool's writer: only what changed, and a device is never in two resources."""

from hypothesis import given
from hypothesis import strategies as st

from devherd import spool
from devherd.proto import spool_pb2
from devherd.scanner.publisher import Publisher


def resource(name: str, *ids: str) -> spool_pb2.Resource:
    devices = [spool_pb2.Device(id=name_, physical_id=name_, vendor="simulated") for name_ in ids]
    return spool_pb2.Resource(name=name, vendor="simulated", devices=devices)


def ids_on_disk(directory) -> dict[str, set[str]]:
    return {
        key: {device.id for device in found.devices} for key, found in spool.read_all(directory, spool_pb2.Resource)
    }


def test_a_resource_has_a_file_for_as_long_as_it_has_devices(tmp_path):
    """The supervisor takes a file that appears for a child to start, one that goes for a child to stop."""
    publisher = Publisher(tmp_path)

    publisher.publish([resource("a.b/x", "0"), resource("a.b/y", "1")])
    publisher.publish([resource("a.b/y", "1")])

    assert ids_on_disk(tmp_path) == {"a.b_y": {"1"}}


def test_an_unchanged_resource_is_not_written_again(tmp_path):
    """A rewrite would wake its child for nothing."""
    publisher = Publisher(tmp_path)
    publisher.publish([resource("a.b/x", "0"), resource("a.b/y", "1")])
    before = (tmp_path / "a.b_x.pb").stat().st_ino

    publisher.publish([resource("a.b/x", "0"), resource("a.b/y", "1", "2")])

    assert (tmp_path / "a.b_x.pb").stat().st_ino == before


def test_a_device_that_moves_leaves_its_resource_before_it_enters_the_other(tmp_path):
    """The kubelet must never be offered one device twice."""
    publisher = Publisher(tmp_path)
    publisher.publish([resource("a.b/x", "0", "1"), resource("a.b/y", "2")])
    moved = [resource("a.b/x", "1"), resource("a.b/y", "0", "2")]

    complete = publisher.publish(moved)
    in_between = ids_on_disk(tmp_path)
    complete_then = publisher.publish(moved)

    assert (complete, in_between) == (False, {"a.b_x": {"1"}, "a.b_y": {"2"}})
    assert (complete_then, ids_on_disk(tmp_path)) == (True, {"a.b_x": {"1"}, "a.b_y": {"0", "2"}})


def test_two_devices_that_change_places_meet_nowhere(tmp_path):
    """A swap, too, goes through a moment without either."""
    publisher = Publisher(tmp_path)
    publisher.publish([resource("a.b/x", "0"), resource("a.b/y", "1")])

    assert publisher.publish([resource("a.b/x", "1"), resource("a.b/y", "0")]) is False
    assert ids_on_disk(tmp_path) == {"a.b_x": set(), "a.b_y": set()}


def test_a_writer_that_starts_again_goes_on_from_what_stands_in_the_directory(tmp_path):
    """A restarted scanner neither rewrites nor forgets."""
    Publisher(tmp_path).publish([resource("a.b/x", "0")])

    again = Publisher(tmp_path)

    assert [found.name for found in again.published] == ["a.b/x"]
    assert again.publish([resource("a.b/y", "0")]) is True or ids_on_disk(tmp_path).get("a.b_y", set()) == set()


def test_a_file_removed_by_someone_else_is_written_again(tmp_path):
    """The spool heals."""
    publisher = Publisher(tmp_path)
    publisher.publish([resource("a.b/x", "0")])
    (tmp_path / "a.b_x.pb").unlink()

    publisher.publish([resource("a.b/x", "0")])

    assert ids_on_disk(tmp_path) == {"a.b_x": {"0"}}


PLACEMENTS = st.lists(
    st.dictionaries(st.sampled_from("0123"), st.sampled_from(["a.b/x", "a.b/y", "a.b/z"])), max_size=8
)


@given(placements=PLACEMENTS)
def test_no_sequence_of_moves_ever_shows_a_device_twice(tmp_path_factory, placements):
    """Whatever is asked for, at every moment each device is in one file at most, and two calls get there."""
    directory = tmp_path_factory.mktemp("spool")
    publisher = Publisher(directory)
    for placement in placements:
        wanted = [
            resource(name, *sorted(device for device, home in placement.items() if home == name))
            for name in sorted(set(placement.values()))
        ]
        for _ in range(2):
            publisher.publish(wanted)
            shown = [device for devices in ids_on_disk(directory).values() for device in devices]
            assert len(shown) == len(set(shown))
        assert ids_on_disk(directory) == {
            spool.key_of(one.name): {device.id for device in one.devices} for one in wanted
        }


def test_a_torn_removed_or_foreign_file_is_noticed_and_set_right(tmp_path):
    """Its child would wait for ever, or serve what nobody knows: the spool has one writer."""
    publisher = Publisher(tmp_path)
    wanted = [resource("a.b/x", "0"), resource("a.b/y", "1"), resource("a.b/z", "2")]
    publisher.publish(wanted)
    assert publisher.stands()
    (tmp_path / "a.b_x.pb").write_bytes(b"\xff")
    (tmp_path / "a.b_y.pb").unlink()
    (tmp_path / "noise.pb").write_bytes(b"noise")
    untouched = (tmp_path / "a.b_z.pb").stat().st_ino

    assert not publisher.stands()
    publisher.publish(wanted)

    assert publisher.stands()
    assert ids_on_disk(tmp_path) == {"a.b_x": {"0"}, "a.b_y": {"1"}, "a.b_z": {"2"}}
    assert not (tmp_path / "noise.pb").exists()
    assert (tmp_path / "a.b_z.pb").stat().st_ino == untouched


def test_what_an_earlier_scanner_left_unreadable_is_removed(tmp_path):
    """Nobody else would ever take it away."""
    (tmp_path / "a.b_old.pb").write_bytes(b"\xff")
    publisher = Publisher(tmp_path)

    publisher.publish([resource("a.b/x", "0")])

    assert [path.name for path in tmp_path.iterdir()] == ["a.b_x.pb"]
