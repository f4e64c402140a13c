"""Generic devices by path, through the native scanner: ids, counts, members, health."""

import os
from hashlib import sha1
from pathlib import Path

import pytest
from answering import AnsweredScan, AnsweringScanner
from hypothesis import given
from hypothesis import strategies as st

from devherd.config.model import Config
from devherd_sim.node.tree import write_tree

NAME = "example.com/x"
GROUP = f"{NAME} group 0"


def scanner(root: Path, *groups: dict) -> AnsweringScanner:
    """Looks at the tree for one generic resource with these groups."""
    config = Config.model_validate({"host_root": root, "generic": [{"name": NAME, "groups": groups}]})
    return AnsweringScanner(str(root), config.native_json())


def planted(root: Path, *nodes: str) -> Path:
    """A simulated host with plain files for these nodes."""
    write_tree("".join(f"{node.removeprefix('/')} =\n" for node in nodes), root)
    return root


def peer_id(instance: int, *paths: str) -> str:
    """The id that generic-device-plugin gives."""
    return sha1(f"{instance}{''.join(paths)}".encode()).hexdigest()


def paths(scan: AnsweredScan) -> list[str]:
    """The host paths of each device, sorted."""
    return sorted(device.attributes["path"] for device in scan.devices)


def test_an_id_is_that_of_generic_device_plugin(tmp_path):
    """A node that moves from the peer to devherd keeps the devices of its running pods."""
    (device,) = scanner(planted(tmp_path, "/dev/video0"), {"paths": [{"path": "/dev/video0"}]}).scan().devices
    assert device.id == "f88ae3a1aba46ffcde26322d41d7d2c9a79fa77c"
    assert device.resource_name == NAME


def test_a_device_tells_what_allocate_will_answer(tmp_path):
    """Nodes, mounts, container paths and permissions are those of the config, paths are without the host root."""
    root = planted(tmp_path, "/dev/ttyUSB0", "/run/x.sock")
    group = {
        "paths": [
            {"path": "/dev/ttyUSB*", "mountPath": "/dev/serial/", "permissions": "rw"},
            {"path": "/run/x.sock", "type": "Mount", "readOnly": True},
        ]
    }
    (device,) = scanner(root, group).scan().devices
    assert device.id == peer_id(0, "/dev/ttyUSB0", "/run/x.sock")
    assert [(node.host_path, node.container_path, node.permissions) for node in device.nodes] == [
        ("/dev/ttyUSB0", "/dev/serial/ttyUSB0", "rw")
    ]
    assert [(mount.host_path, mount.container_path, mount.read_only) for mount in device.mounts] == [
        ("/run/x.sock", "/run/x.sock", True)
    ]
    assert device.attributes == {"path": "/dev/ttyUSB0,/run/x.sock", "group": "0"}
    assert device.reasons == []


def test_one_path_may_be_given_out_many_times(tmp_path):
    """`count` makes as many ids of the same path."""
    scan = scanner(planted(tmp_path, "/dev/kvm"), {"count": 3, "paths": [{"path": "/dev/kvm"}]}).scan()
    (device,) = scan.devices
    assert device.shares == [peer_id(instance, "/dev/kvm") for instance in range(3)]


def test_a_limit_lets_a_match_be_used_again(tmp_path):
    """Three ttys share one socket, whose limit allows it."""
    root = planted(tmp_path, "/dev/tty0", "/dev/tty1", "/dev/tty2", "/run/x")
    shared = {"path": "/run/x", "type": "Mount", "limit": 3}
    assert paths(scanner(root, {"paths": [{"path": "/dev/tty*"}, shared]}).scan()) == [
        "/dev/tty0,/run/x",
        "/dev/tty1,/run/x",
        "/dev/tty2,/run/x",
    ]


@given(
    count=st.integers(1, 3),
    members=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=3),
)
def test_the_number_of_devices_follows_the_formula(tmp_path_factory, count, members):
    """Over the members that count: the count times the smaller of the most matches and the fewest uses."""
    root = planted(
        tmp_path_factory.mktemp("tree"),
        "/dev/null",
        *(f"/dev/m{member}-{n}" for member, (matches, _, _) in enumerate(members) for n in range(matches)),
    )
    options = [
        {"path": f"/dev/m{member}-*", "limit": limit, "optional": optional}
        for member, (_, limit, optional) in enumerate(members)
    ]
    counted = [(matches, limit) for matches, limit, optional in members if matches or not optional]
    most = max((matches for matches, _ in counted), default=0)
    fewest = min((matches * limit for matches, limit in counted), default=0)
    devices = scanner(root, {"count": count, "paths": options}).scan().devices
    assert sum(len(device.shares) or 1 for device in devices) == count * min(most, fewest)


def test_the_same_paths_in_two_groups_are_one_device_and_a_problem(tmp_path):
    """The peer collapses them without a word."""
    group = {"paths": [{"path": "/dev/kvm"}]}
    scan = scanner(planted(tmp_path, "/dev/kvm"), group, group).scan()
    assert paths(scan) == ["/dev/kvm"]
    (problem,) = scan.problems
    assert (problem.vendor, problem.path, problem.device) == ("generic", "/dev/kvm", peer_id(0, "/dev/kvm"))
    assert "group 0" in problem.error


@pytest.mark.parametrize("pattern", ["/dev/[", "/dev/a\\", "/dev/[]"])
def test_a_pattern_without_sense_is_a_problem_and_costs_no_other_group(tmp_path, pattern):
    """The other groups are served."""
    scan = scanner(
        planted(tmp_path, "/dev/kvm"), {"paths": [{"path": pattern}]}, {"paths": [{"path": "/dev/kvm"}]}
    ).scan()
    assert paths(scan) == ["/dev/kvm"]
    assert [problem.path for problem in scan.problems] == [pattern]


def test_a_link_is_told_by_its_own_name_and_followed_below_the_host_root(tmp_path):
    """by-id links are stable names; an absolute one means a path of the host, not of this container."""
    root = planted(tmp_path, "/dev/ttyUSB0", "/run/x.sock")
    (root / "dev/serial/by-id").mkdir(parents=True)
    (root / "dev/serial/by-id/usb-adapter").symlink_to("../../ttyUSB0")
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    group = {"paths": [{"path": "/dev/serial/by-id/*"}, {"path": "/var/run/x.sock", "type": "Mount"}]}
    native = scanner(root, group)
    (device,) = native.scan().devices
    assert device.attributes["path"] == "/dev/serial/by-id/usb-adapter,/var/run/x.sock"
    assert device.reasons == []
    assert native.poll() == []
    assert str(root / "dev/serial/by-id") in native.watched_directories()


def test_a_plain_file_is_no_device_on_a_real_host(tmp_path):
    """It is Unhealthy, and a problem says what to write into the config."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/file").touch()
    scan = scanner(tmp_path, {"paths": [{"path": "/dev/file"}]}).scan()
    assert [device.reasons for device in scan.devices] == [["node-missing"]]
    assert "type: Mount" in scan.problems[0].error


def test_a_node_that_goes_and_comes_is_polled_unhealthy_and_healthy(tmp_path):
    """No scan is needed in between."""
    root = planted(tmp_path, "/dev/kvm", "/dev/fuse")
    native = scanner(root, {"paths": [{"path": "/dev/kvm"}]}, {"paths": [{"path": "/dev/fuse"}]})
    native.scan()
    assert native.poll() == []
    (root / "dev/kvm").unlink()
    assert native.poll() == [("generic", GROUP, peer_id(0, "/dev/kvm"), ["node-missing"])]
    (root / "dev/kvm").touch()
    assert native.poll() == []


def test_a_file_that_goes_and_comes_is_polled_unhealthy_and_healthy(tmp_path):
    """Likewise: in a running devherd a scan may say first that it is gone."""
    root = planted(tmp_path, "/run/licence", "/dev/fuse")
    mounted = {"paths": [{"path": "/run/licence", "type": "Mount"}]}
    native = scanner(root, mounted, {"paths": [{"path": "/dev/fuse"}]})
    (licence,) = (device.id for device in native.scan().devices if device.attributes["path"] == "/run/licence")
    assert native.poll() == []
    (root / "run/licence").unlink()
    assert native.poll() == [("generic", GROUP, licence, ["node-missing"])]
    (root / "run/licence").touch()
    assert native.poll() == []


def test_a_device_that_vanished_is_absent_from_the_next_scan(tmp_path):
    """What becomes of it then is the inventory's business."""
    root = planted(tmp_path, "/dev/kvm")
    native = scanner(root, {"paths": [{"path": "/dev/kvm"}]})
    assert paths(native.scan()) == ["/dev/kvm"]
    (root / "dev/kvm").unlink()
    again = native.scan()
    assert again.changed
    assert (again.devices, again.unseen) == ([], [])
    assert [problem.path for problem in again.problems] == ["/dev/kvm"]
    assert native.poll() == []


def test_real_nodes_of_this_machine_are_found(tmp_path):
    """/dev/null and /dev/zero are there, healthy, far from any NUMA node."""
    native = scanner(Path("/"), {"paths": [{"path": "/dev/null"}, {"path": "/dev/zero"}]})
    (device,) = native.scan().devices
    assert device.attributes["path"] == "/dev/null,/dev/zero"
    assert (device.reasons, device.numa_nodes, native.poll()) == ([], [], [])


def test_the_numa_node_of_a_real_node_is_that_of_its_hardware(tmp_path):
    """/sys/dev leads from the number of the node to the directory of its device, whose parents know the NUMA node."""
    root = planted(tmp_path)
    (root / "dev").mkdir()
    number = Path("/dev/null").stat().st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    write_tree(
        f"sys/dev/char/{name} -> ../../devices/pci0000:00/0000:00:14.0/tty/x\n"
        "sys/devices/pci0000:00/0000:00:14.0/numa_node = 1\n"
        "sys/devices/pci0000:00/0000:00:14.0/tty/x/\n",
        root,
    )
    try:
        os.mknod(root / "dev/x", 0o600 | 0o020000, number)
    except PermissionError:
        expected = []
        (root / "dev/x").touch()
    else:
        expected = [1]
    (device,) = scanner(root, {"paths": [{"path": "/dev/x"}]}).scan().devices
    assert device.numa_nodes == expected
