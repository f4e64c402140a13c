"""The spool's writer: only what changed, and a device is never in two resources."""

from pathlib import Path

import pytest
from descriptors import descriptors
from hypothesis import given, settings
from hypothesis import strategies as st
from offered import served_of

from devherd import spool
from devherd.offers.device_plugin import ServedOffer
from devherd.proto import spool_pb2
from devherd.scanner.publisher import Acknowledgements, Publisher


class Herd:
    """The files of a run directory whose supervisor and children do what a test says."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.resources = run_dir / "resources"
        self._state = run_dir / "state"
        self._children_file = run_dir / "children.pb"
        self._running: set[str] = set()
        self._state.mkdir()

    def start(self) -> None:
        """Each resource has a process from now on."""
        self._running |= spool.keys_in(self.resources)
        self._write_children()

    def publisher(self) -> Publisher:
        """Of a scanner that starts."""
        return Publisher(self.run_dir / "offers.pb", self.resources, Acknowledgements(self._state, self._children_file))

    def send_lists(self, *keys: str) -> None:
        """The children that run, or those of these resources, send the list of the moment and say so."""
        for key, found in spool.read_all(self.resources, spool_pb2.Resource):
            if key in self._running and key in (keys or self._running):
                state = spool_pb2.ResourceState(name=found.name, sent_version=found.version)
                spool.write(spool.path_of(self._state, key), state)

    def end(self, key: str) -> None:
        """A child's process ends."""
        self._running.remove(key)
        self._write_children()

    def _write_children(self) -> None:
        children = [spool_pb2.Child(name=f"resource:{key}", pid=1) for key in sorted(self._running)]
        spool.write(self._children_file, spool_pb2.Children(children=children))


def publisher_of(directory: Path) -> Publisher:
    """A writer without any children."""
    return Publisher(
        directory.with_suffix(".pb"), directory, Acknowledgements(directory / "no-state", directory / "no-children")
    )


def offer(name: str, *ids: str) -> ServedOffer:
    devices = [spool_pb2.Device(id=name_, vendor="simulated") for name_ in ids]
    return served_of(
        spool_pb2.Offer(name=name, vendor="simulated", front_end=spool.DEVICE_PLUGIN_FRONT_END, devices=devices)
    )


def ids_on_disk(directory) -> dict[str, set[str]]:
    return {
        key: {device.id for device in found.devices} for key, found in spool.read_all(directory, spool_pb2.Resource)
    }


def test_a_resource_has_a_file_for_as_long_as_it_has_devices(tmp_path):
    """The supervisor takes a file that appears for a child to start, one that goes for a child to stop."""
    publisher = publisher_of(tmp_path)

    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    publisher.publish([offer("a.b/y", "1")])

    assert ids_on_disk(tmp_path) == {"a.b_y": {"1"}}


def test_an_unchanged_resource_is_not_written_again(tmp_path):
    """A rewrite would wake its child for nothing."""
    publisher = publisher_of(tmp_path)
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    before = spool.path_of(tmp_path, "a.b_x").stat().st_ino

    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1", "2")])

    assert spool.path_of(tmp_path, "a.b_x").stat().st_ino == before


def test_a_device_that_moves_is_in_the_next_resource_once_the_one_before_has_sent_its_list(tmp_path):
    """The kubelet must never be offered one device twice, however long the child takes."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0", "1"), offer("a.b/y", "2")])
    herd.start()
    herd.send_lists()
    moved = [offer("a.b/x", "1"), offer("a.b/y", "0", "2")]

    for _ in range(3):
        assert not publisher.publish(moved)
        assert ids_on_disk(herd.resources) == {"a.b_x": {"1"}, "a.b_y": {"2"}}
    herd.send_lists("a.b_y")
    assert not publisher.publish(moved)
    herd.send_lists("a.b_x")

    assert publisher.publish(moved)
    assert ids_on_disk(herd.resources) == {"a.b_x": {"1"}, "a.b_y": {"0", "2"}}


def test_a_device_that_waits_for_its_move_holds_up_no_other(tmp_path):
    """New devices and health of others are written meanwhile."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "2")])
    herd.start()

    assert not publisher.publish([offer("a.b/x"), offer("a.b/y", "0", "2", "3"), offer("a.b/z", "4")])

    assert ids_on_disk(herd.resources) == {"a.b_x": set(), "a.b_y": {"2", "3"}, "a.b_z": {"4"}}


def test_a_device_can_go_back_where_it_came_from_at_any_time(tmp_path):
    """Nobody else was offered it."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    assert not publisher.publish([offer("a.b/x"), offer("a.b/y", "0", "1")])

    assert publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])

    assert ids_on_disk(herd.resources) == {"a.b_x": {"0"}, "a.b_y": {"1"}}


def test_a_device_of_a_child_that_does_not_run_moves_at_once(tmp_path):
    """The stream ended with the process: the kubelet counts all its devices as Unhealthy."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    herd.end("a.b_x")

    assert publisher.publish([offer("a.b/x"), offer("a.b/y", "0", "1")])

    assert ids_on_disk(herd.resources) == {"a.b_x": set(), "a.b_y": {"0", "1"}}


def test_a_device_of_a_removed_resource_moves_when_the_child_has_ended(tmp_path):
    """What the child last said does not count: it has still to send its empty list."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    herd.send_lists()
    moved = [offer("a.b/y", "0", "1")]

    assert not publisher.publish(moved)
    assert ids_on_disk(herd.resources) == {"a.b_y": {"1"}}
    herd.end("a.b_x")

    assert publisher.publish(moved)
    assert ids_on_disk(herd.resources) == {"a.b_y": {"0", "1"}}


def test_a_resource_that_comes_back_holds_up_nothing_once_its_list_is_sent(tmp_path):
    """Whichever process sends it: the one that has not ended yet, or the next one."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    herd.send_lists()
    publisher.publish([offer("a.b/y", "0", "1")])
    wanted = [offer("a.b/x", "2"), offer("a.b/y", "0", "1")]

    assert not publisher.publish(wanted)
    assert ids_on_disk(herd.resources) == {"a.b_x": {"2"}, "a.b_y": {"1"}}
    herd.send_lists()

    assert publisher.publish(wanted)
    assert ids_on_disk(herd.resources) == {"a.b_x": {"2"}, "a.b_y": {"0", "1"}}


def test_two_devices_that_change_places_meet_nowhere(tmp_path):
    """A swap, too, goes through a moment without either."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    swapped = [offer("a.b/x", "1"), offer("a.b/y", "0")]

    assert not publisher.publish(swapped)
    assert ids_on_disk(herd.resources) == {"a.b_x": set(), "a.b_y": set()}
    herd.send_lists()

    assert publisher.publish(swapped)
    assert ids_on_disk(herd.resources) == {"a.b_x": {"1"}, "a.b_y": {"0"}}


def test_a_move_outlives_the_writer(tmp_path):
    """A scanner that is killed in the middle of it leaves its successor to wait."""
    herd = Herd(tmp_path)
    before = herd.publisher()
    before.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    herd.send_lists()
    moved = [offer("a.b/x"), offer("a.b/y", "0", "1")]
    assert not before.publish(moved)

    after = herd.publisher()

    assert not after.publish(moved)
    assert ids_on_disk(herd.resources) == {"a.b_x": set(), "a.b_y": {"1"}}
    herd.send_lists()
    assert after.publish(moved)
    assert ids_on_disk(herd.resources) == {"a.b_x": set(), "a.b_y": {"0", "1"}}


def test_a_removal_outlives_the_writer(tmp_path):
    """Also where only a child that still runs says that there was such a resource."""
    herd = Herd(tmp_path)
    before = herd.publisher()
    before.publish([offer("a.b/x", "0"), offer("a.b/y", "1")])
    herd.start()
    herd.send_lists()
    moved = [offer("a.b/y", "0", "1")]
    assert not before.publish(moved)

    after = herd.publisher()

    assert not after.publish(moved)
    herd.end("a.b_x")
    assert after.publish(moved)


def test_a_writer_that_starts_again_goes_on_from_what_stands_in_the_directory(tmp_path):
    """A restarted scanner neither rewrites nor forgets, and the versions of its lists go on rising."""
    herd = Herd(tmp_path)
    herd.publisher().publish([offer("a.b/x", "0")])
    herd.start()
    before = spool.path_of(herd.resources, "a.b_x").read_bytes()

    again = herd.publisher()

    assert [found.name for found in again.published] == ["a.b/x"]
    again.publish([offer("a.b/x", "0")])
    assert spool.path_of(herd.resources, "a.b_x").read_bytes() == before
    assert not again.publish([offer("a.b/y", "0")])
    assert ids_on_disk(herd.resources) == {}
    herd.end("a.b_x")
    assert again.publish([offer("a.b/y", "0")])
    assert ids_on_disk(herd.resources) == {"a.b_y": {"0"}}


def test_a_file_removed_by_someone_else_is_written_again(tmp_path):
    """The spool heals."""
    publisher = publisher_of(tmp_path)
    publisher.publish([offer("a.b/x", "0")])
    spool.path_of(tmp_path, "a.b_x").unlink()

    publisher.publish([offer("a.b/x", "0")])

    assert ids_on_disk(tmp_path) == {"a.b_x": {"0"}}


NAMES = ["a.b/x", "a.b/y", "a.b/z"]
KEYS = [spool.key_of(name) for name in NAMES]
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("0123"), st.sampled_from(NAMES)), st.sets(st.sampled_from(KEYS), min_size=1)
    ),
    max_size=8,
)


@settings(deadline=None)  # it writes files, and asserts no times
@given(steps=STEPS)
def test_no_sequence_of_moves_ever_shows_the_kubelet_a_device_twice(tmp_path_factory, steps):
    """Whatever is asked for and whoever is slow: what the children last sent has no device twice, and all get there."""
    herd = Herd(tmp_path_factory.mktemp("run"))
    publisher = herd.publisher()
    publisher.publish([offer(name, name) for name in NAMES])
    herd.start()
    sent: dict[str, set[str]] = {}
    for placement, quick in [*steps, ({}, set(KEYS))]:
        wanted = [offer(name, name, *sorted(one for one, home in placement.items() if home == name)) for name in NAMES]
        for _ in range(2):
            publisher.publish(wanted)
            herd.send_lists(*quick)
            sent |= {key: ids for key, ids in ids_on_disk(herd.resources).items() if key in quick}
            shown = [device for devices in sent.values() for device in devices]
            assert len(shown) == len(set(shown))
        if quick == set(KEYS):
            assert publisher.publish(wanted)
            assert ids_on_disk(herd.resources) == {
                spool.key_of(one.name): {device.id for device in one.offer.message.devices} for one in wanted
            }


def test_a_torn_removed_or_foreign_file_is_noticed_and_set_right(tmp_path):
    """Its child would wait for ever, or serve what nobody knows: the spool has one writer."""
    publisher = publisher_of(tmp_path)
    wanted = [offer("a.b/x", "0"), offer("a.b/y", "1"), offer("a.b/z", "2")]
    publisher.publish(wanted)
    assert publisher.is_intact()
    spool.path_of(tmp_path, "a.b_x").write_bytes(b"\xff")
    spool.path_of(tmp_path, "a.b_y").unlink()
    spool.path_of(tmp_path, "noise").parent.mkdir()
    spool.path_of(tmp_path, "noise").write_bytes(b"noise")
    untouched = spool.path_of(tmp_path, "a.b_z").stat().st_ino

    assert not publisher.is_intact()
    publisher.publish(wanted)

    assert publisher.is_intact()
    assert ids_on_disk(tmp_path) == {"a.b_x": {"0"}, "a.b_y": {"1"}, "a.b_z": {"2"}}
    assert not (tmp_path / "noise").exists()
    assert spool.path_of(tmp_path, "a.b_z").stat().st_ino == untouched


def test_what_an_earlier_scanner_left_unreadable_is_removed(tmp_path):
    """Nobody else would ever take it away."""
    (tmp_path / "a.b_old").mkdir()
    spool.path_of(tmp_path, "a.b_old").write_bytes(b"\xff")
    publisher = publisher_of(tmp_path)

    publisher.publish([offer("a.b/x", "0")])

    assert [path.name for path in tmp_path.iterdir()] == ["a.b_x"]


def test_an_offer_shows_what_its_child_shows(tmp_path):
    """A device that waits for its move is in no offer: status would show it where no pod can have it."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0", "1"), offer("a.b/y", "2")])
    herd.start()

    assert not publisher.publish([offer("a.b/x", "1"), offer("a.b/y", "0", "2")])

    shown = spool.read(tmp_path / "offers.pb", spool_pb2.Offers).offers
    assert {each.name: [device.id for device in each.devices] for each in shown} == {"a.b/x": ["1"], "a.b/y": ["2"]}


def test_offers_that_somebody_removed_are_written_again(tmp_path):
    """Status and metrics would have nothing to show."""
    publisher = publisher_of(tmp_path / "resources")
    publisher.publish([offer("a.b/x", "0")])
    (tmp_path / "resources.pb").unlink()
    assert not publisher.is_intact()

    publisher.publish([offer("a.b/x", "0")])

    assert publisher.is_intact()


def test_without_descriptors_no_child_is_taken_for_one_that_does_not_run(tmp_path):
    """Defect: what the supervisor says was read as empty, and a device entered a resource before another had let go."""
    herd = Herd(tmp_path)
    publisher = herd.publisher()
    publisher.publish([offer("a.b/x", "0")])
    herd.start()
    acknowledgements = Acknowledgements(tmp_path / "state", tmp_path / "children.pb")
    with descriptors(0), pytest.raises(OSError, match="Too many open files"):
        acknowledgements.has("a.b_x", None)
    assert not acknowledgements.has("a.b_x", None)
