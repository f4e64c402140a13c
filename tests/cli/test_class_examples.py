"""The examples of `docs/classes.md`, typed into `devherd classes check` on hosts with such a device and others."""

import json
import re
from pathlib import Path

import pytest
import yaml
from class_trees import entry, function, misc, written
from command_line import devherd

PAGE = Path(__file__).parents[2] / "docs" / "classes.md"
_ROW = re.compile(r"^\| (?P<device>[^|`]+) \| (?P<examples>`.*) \|$", re.MULTILINE)


def examples():
    """The class of each row of the page, by what it is for: `find`, and the keys beside it."""
    made = {}
    for row in [*_ROW.finditer(PAGE.read_text("utf-8"))][1:]:  # the first is the heading
        first, *others = re.findall("`([^`]+)`", row["examples"])
        content = {"find": yaml.safe_load(first)}
        for other in others:
            content |= yaml.safe_load(other)
        made[row["device"]] = content
    return made


def usb(port, vendor, product, *nodes):
    """A USB device with class devices, each with its number and node: `ttyUSB0/tty/ttyUSB0`, `188:0`."""
    device = f"pci0000:00/0000:00:14.0/usb1/{port}"
    yield from function("pci0000:00/0000:00:14.0", "0x8086", "0xa0ed", "xhci_hcd")
    for name, text in {"idVendor": vendor, "idProduct": product, "dev": f"189:{port[-1]}"}.items():
        yield f"sys/devices/{device}/{name} = {text}"
    for place, listed, number, node in nodes:
        yield from entry(f"{device}/{port}:1.0/{place}", listed, number, node)


def serial(port, vendor, product, number):
    """A serial adapter."""
    tty = f"ttyUSB{number}"
    return usb(port, vendor, product, (f"{tty}/tty/{tty}", "class/tty", f"188:{number}", tty))


def camera(port, product, number):
    """A camera with its two nodes."""
    videos = [f"video{each}" for each in (number, number + 1)]
    nodes = [(f"video4linux/{one}", "class/video4linux", f"81:{one[5:]}", one) for one in videos]
    return usb(port, "046d", product, *nodes)


def passed_through():
    """A GPU under vfio-pci, and another under its driver."""
    for place, driver in (("pci0000:41/0000:41:00.0", "vfio-pci"), ("pci0000:42/0000:42:00.0", "nvidia")):
        yield from function(place, "0x10de", "0x1eb8", driver)
        yield f"sys/devices/{place}/iommu_group -> ../../../kernel/iommu_groups/7"
    yield from ("dev/vfio/7 char 242:0", "dev/vfio/vfio char 10:196")


HOSTS = {
    "a serial adapter by its USB id": (
        [serial("1-2", "1a86", "7523", 0), serial("1-3", "0403", "6001", 1)],
        {"ttyUSB0": ["/dev/ttyUSB0"]},
    ),
    "a camera, its nodes together": (
        [camera("1-2", "0825", 0), camera("1-3", "0825", 2), camera("1-4", "0826", 4)],
        {"video0": ["/dev/video0", "/dev/video1"], "video2": ["/dev/video2", "/dev/video3"]},
    ),
    "PCI functions for virtual machines": ([passed_through()], {"0000:41:00.0": ["/dev/vfio/7", "/dev/vfio/vfio"]}),
    "one node for many containers": ([misc({"fuse": "fuse", "kvm": "kvm"})], {"fuse-0": ["/dev/fuse"]}),
}


def test_each_example_of_the_page_has_a_host_here():
    """And none has gone from the page."""
    assert examples().keys() == HOSTS.keys()


@pytest.mark.parametrize("device", HOSTS)
def test_an_example_of_the_page_finds_such_devices_and_no_others(tmp_path, device):
    """As somebody types it."""
    trees, expected = HOSTS[device]
    root = written(tmp_path / "host", *trees)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(examples()[device]))

    done = devherd("classes", "check", tmp_path / "mine.yaml", "--host-root", root, "--output", "json")

    told = json.loads(done.stdout)
    assert {one["ids"][0]: sorted(node["path"] for node in one["nodes"]) for one in told["devices"]} == expected
    assert (told["problems"], told["notices"], done.code) == ([], [], 0)
    if device == "one node for many containers":
        assert len(told["devices"][0]["ids"]) == 100
