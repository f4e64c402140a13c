"""Intel's plugins for which device classes stand in: with the imported configuration the same is advertised."""

import re
from pathlib import Path

import pytest
import yaml
from class_trees import accelerators, crypto, data_streaming, entry, load_balancers, misc, written

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.importers import import_text
from devherd.scanner.once import scan_once
from devherd.spool import listed

PAGE = Path(__file__).parents[2] / "docs" / "classes.md"
SGX = {"sgx_enclave": "sgx_enclave", "sgx_provision": "sgx_provision"}
OPERATOR = "deviceplugin.intel.com/v1"


def daemon_set(device, *args):
    """The DaemonSet of a plugin."""
    image = f"intel/intel-{device}-plugin:0.36.0"
    pod = {"containers": [{"name": f"intel-{device}-plugin", "image": image, "args": list(args)}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "x"},
        "spec": {"template": {"spec": pod}},
    }


def custom(device, **spec):
    """The object by which Intel's operator starts a plugin."""
    return {"apiVersion": OPERATOR, "kind": f"{device}DevicePlugin", "metadata": {"name": "x"}, "spec": spec}


def imported(document):
    """The only configuration of a document."""
    (found,) = import_text(yaml.safe_dump(document), "the text", None)
    return found


def served(root, config):
    """The ids of each resource."""
    report = scan_once(resolve(Config.model_validate(config | {"host_root": str(root)})))
    return {offer.name: sorted(device_id for device_id, _ in listed(offer)) for offer in report.offers}


def shares(form, count):
    """The ids of a device's shares."""
    return sorted(form.format(number) for number in range(count))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A host with a device of each plugin."""
    trees = (accelerators(), data_streaming(), load_balancers(), crypto(), misc(SGX))
    return written(tmp_path_factory.mktemp("node") / "host", *trees)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (daemon_set("npu"), {"npu.intel.com/accel": ["accel0-0"]}),
        (daemon_set("npu", "-shared-dev-num=3", "-v=2"), {"npu.intel.com/accel": shares("accel0-{}", 3)}),
        (custom("Npu", sharedDevNum=3, logLevel=4), {"npu.intel.com/accel": shares("accel0-{}", 3)}),
        (
            custom("Dsa", sharedDevNum=2),
            {
                "dsa.intel.com/wq-user-shared": shares("wq-user-shared-wq0.0-{}", 2),
                "dsa.intel.com/wq-user-dedicated": ["wq-user-dedicated-wq0.1-0"],
            },
        ),
        (daemon_set("iaa"), {"iaa.intel.com/wq-user-dedicated": ["wq-user-dedicated-wq1.0-0"]}),
        (custom("Dlb", logLevel=4), {"dlb.intel.com/pf": ["/dev/dlb0"], "dlb.intel.com/vf": ["/dev/dlb2"]}),
        (
            daemon_set("sgx", "-enclave-limit=20", "-provision-limit=0"),
            {"sgx.intel.com/enclave": shares("sgx-enclave-{}", 20)},
        ),
        (
            custom("Sgx", enclaveLimit=1, provisionLimit=2),
            {"sgx.intel.com/enclave": ["sgx-enclave-0"], "sgx.intel.com/provision": shares("sgx-provision-{}", 2)},
        ),
        (daemon_set("qat", "-allocation-policy=balanced"), {"qat.intel.com/cy": ["0000:70:00.1"]}),
        (custom("Qat", kernelVfDrivers=["4xxxvf", "c6xxvf"]), {"qat.intel.com/cy": ["0000:70:00.1"]}),
    ],
    ids=lambda value: str(value.get("kind", "")) if "kind" in value else "",
)
def test_what_a_plugin_advertised_is_advertised(root, document, expected):
    """Resources and ids, with its flags and with the object of its operator."""
    assert served(root, imported(document).config) == expected


@pytest.mark.parametrize("device", ["Dsa", "Iaa"])
def test_shared_and_dedicated_queues_are_classes_of_their_own_and_nothing_is_said_of_them(root, device):
    """Defect: each shared queue fitted two classes, of which a note told for ever."""
    config = imported(custom(device, sharedDevNum=2)).config
    report = scan_once(resolve(Config.model_validate(config | {"host_root": str(root)})))

    name = f"intel-{device.lower()}"
    assert [*config["classes"]["define"]] == [f"{name}-shared", f"{name}-dedicated"]
    assert not any("also fits" in one.error for one in report.notices)


def test_functions_of_older_qats_are_generic():
    """Their resource is not named by their services."""
    classes = imported(custom("Qat", kernelVfDrivers=["c6xxvf"])).config["classes"]["define"]

    assert [*classes] == ["intel-qat-generic"]
    assert classes["intel-qat-generic"]["find"]["device"] == ["0x37c9"]
    assert classes["intel-qat-generic"]["plugin"]["resource"] == "qat.intel.com/generic"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (daemon_set("qat"), "no variables QAT0"),
        (daemon_set("qat", "-dpdk-driver", "igb_uio"), "under vfio-pci alone"),
        (daemon_set("dsa", "-driver=vfio-pci"), "not served by the class"),
        (daemon_set("sgx", "-dcap-infra-resources"), "two resources are not served"),
        (custom("Dlb", sharedDevNum=2), "spec.sharedDevNum is left out"),
    ],
)
def test_what_is_not_as_before_is_named(document, words):
    """A note for a person."""
    assert any(words in note for note in imported(document).notes)


def test_flags_that_another_plugin_has_as_well_are_still_taken_for_that_one():
    """`-shared-dev-num` alone is the GPU plugin's, as before; a name decides otherwise."""
    assert import_text("-shared-dev-num=2", "the text", None)[0].plugin == "intel-gpu"
    assert import_text("-shared-dev-num=2", "the text", "intel-npu")[0].plugin == "intel-npu"


def test_the_devices_that_kubevirt_permits_become_classes_for_virtual_machines(root):
    """With the variable and the nodes that KubeVirt gives; what another plugin serves stays with that."""
    permitted = {
        "pciHostDevices": [
            {"pciVendorSelector": "8086:4941", "resourceName": "intel.com/qat"},
            {"pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/T4", "externalResourceProvider": True},
        ],
        "mediatedDevices": [{"mdevNameSelector": "GRID T4-1Q", "resourceName": "nvidia.com/GRID_T4-1Q"}],
    }
    spec = {"configuration": {"permittedHostDevices": permitted}}
    found = imported({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "x"}, "spec": spec})

    assert [*found.config["classes"]["define"]] == ["qat"]
    assert served(root, found.config) == {"intel.com/qat": ["0000:70:00.1"]}
    assert any("nvidia.com/T4 is left out" in note for note in found.notes)
    assert not found.serves_the_same  # the mediated devices


SMARTER = "- {devicematch: '^ttyUSB[0-9]*$', nummaxdevices: 1}\n- {devicematch: ^snd$, nummaxdevices: 20}\n"


@pytest.mark.parametrize(
    "document",
    [
        yaml.safe_load(SMARTER),
        {"config": yaml.safe_load(SMARTER)},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"conf.yaml": SMARTER}},
    ],
)
def test_the_patterns_of_smarter_device_manager_are_classes_and_names_are_paths(document):
    """As a file, as values of its chart, and in its ConfigMap."""
    config = imported(document).config

    assert config["generic"] == [
        {"name": "smarter-devices/snd", "groups": [{"count": 20, "paths": [{"path": "/dev/snd"}]}]}
    ]
    assert config["classes"]["define"] == {
        "smarter-ttyusb": {
            "find": {"class": "tty", "name": "ttyUSB{n}"},
            "permissions": "rwm",
            "plugin": {"resource": "smarter-devices/{name}"},
        }
    }
    resolve(Config.model_validate(config))


def test_a_pattern_that_names_no_kind_is_named():
    """No guess."""
    found = imported([{"devicematch": "^(a|b).*$", "nummaxdevices": 1}])

    assert (found.config, found.serves_the_same) == ({}, False)


@pytest.mark.parametrize(
    ("rule", "find"),
    [
        ('KERNEL=="video[0-9]*"', {"class": "video4linux", "name": "video{n}"}),
        ('SUBSYSTEM=="sound", KERNEL=="card[0-9]*"', {"class": "sound", "name": "card{n}"}),
        (
            'SUBSYSTEM=="tty", ATTRS{idVendor}=="1a86", ATTRS{idProduct}=="7523"',
            {"class": "tty", "above": {"attr": {"idVendor": "1a86", "idProduct": "7523"}}},
        ),
        ('SUBSYSTEM=="tty", ATTR{type}=="4"', {"class": "tty", "attr": {"type": "4"}}),
        ('SUBSYSTEM=="usb", ATTR{idVendor}=="046d"', {"bus": "usb", "attr": {"idVendor": "046d"}}),
        ('SUBSYSTEM=="usb", ATTRS{idVendor}=="046d"', {"bus": "usb", "attr": {"idVendor": "046d"}}),
        ('SUBSYSTEM=="i2c", KERNEL=="i2c-[0-9]*"', {"bus": "i2c", "name": "i2c-{n}"}),
        ('SUBSYSTEM=="hid"', {"bus": "hid"}),
        ('SUBSYSTEM=="pci", ATTR{vendor}=="0x8086"', None),
        ('SUBSYSTEM=="tty", ATTR{type}=="4*"', None),
        ('SUBSYSTEM=="tty", ATTRS{idVendor}=="1a8[67]"', None),
        ('SUBSYSTEM=="tty", ATTRS{idVendor}=="1a86|0403"', None),
        ('SUBSYSTEM=="sound*"', None),
        ('SUBSYSTEM=="tty", ATTRS{../idVendor}=="1a86"', None),
        ('SUBSYSTEM=="tty", ENV{ID_VENDOR}=="x"', None),
        ('SUBSYSTEM!="tty"', None),
        ('ATTR{type}=="4"', None),
    ],
)
def test_a_rule_of_akri_is_a_class_or_is_named(rule, find):
    """The grammar of both is udev's; a class has a part of it."""
    details = yaml.safe_dump({"udevRules": [rule]})
    handler = {"name": "udev", "discoveryDetails": details}
    document = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "akri-udev"}}
    found = imported(document | {"spec": {"capacity": 2, "discoveryHandler": handler}})

    classes = found.config.get("classes", {}).get("define", {})
    assert [one["find"] for one in classes.values()] == ([find] if find else [])
    assert [one["plugin"] for one in classes.values()] == (
        [{"resource": "akri.sh/akri-udev", "shares": 2}] if find else []
    )
    assert not found.serves_the_same
    resolve(Config.model_validate(found.config))


def camera(bus, number, video):
    """The two nodes of a USB camera at port 1 of a bus."""
    device = f"pci0000:00/usb{bus}/{bus}-1"
    yield f"sys/devices/{device}/devpath = 1"
    yield f"sys/devices/{device}/idVendor = 046d"
    yield f"sys/devices/{device}/dev = 189:{number}"
    for each in (video, video + 1):
        place = f"{device}/{bus}-1:1.0/video4linux/video{each}"
        yield from entry(place, "class/video4linux", f"81:{each}", f"video{each}")


def akri(*rules, **details):
    """What is imported for a Configuration of Akri with these rules."""
    handler = {"name": "udev", "discoveryDetails": yaml.safe_dump({"udevRules": list(rules)} | details)}
    document = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "akri-udev"}}
    return imported(document | {"spec": {"discoveryHandler": handler}})


def test_two_cameras_at_the_same_port_of_two_buses_are_two_devices(tmp_path):
    """The nodes of each are together: `devpath` is the port without its bus, `dev` is the USB device's own number."""
    root = written(tmp_path / "host", camera(1, 1, 0), camera(2, 129, 2))
    config = akri('SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"', groupRecursive=True).config

    assert served(root, config) == {"akri.sh/akri-udev": ["video0", "video2"]}
    shown = re.search(r"a camera, its nodes together \| `(.*?)`, with `facts: (.*?)`", PAGE.read_text("utf-8"))
    of_the_page = {"find": yaml.safe_load(shown[1]), "facts": yaml.safe_load(shown[2]), "group": "camera"}
    of_the_page["find"]["above"]["attr"].pop("idProduct")
    assert served(root, {"classes": {"define": {"camera": of_the_page}}}) == {"devherd.io/camera": ["video0", "video2"]}


def test_what_cannot_be_a_class_is_left_out_with_a_note_and_the_rest_is_imported():
    """Defect: one strange rule, or one number in quotes, failed the whole import."""
    rules = akri('SUBSYSTEM=="tty", ATTRS{../idVendor}=="1a86"', 'SUBSYSTEM=="sound"')
    smarter = imported(
        [
            {"devicematch": "^ttyUSB[0-9]*$", "nummaxdevices": "0"},
            {"devicematch": "^snd$", "nummaxdevices": "0"},
            {"devicematch": "^ttyACM[0-9]*$"},
        ]
    )
    permitted = [
        {"pciVendorSelector": "8086:4941", "resourceName": "nodomain"},
        {"pciVendorSelector": "8086:4941", "resourceName": "intel.com/qat"},
    ]
    spec = {"configuration": {"permittedHostDevices": {"pciHostDevices": permitted}}}
    kubevirt = imported({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "x"}, "spec": spec})

    for found, names, left in (
        (rules, ["akri-udev"], ["ATTRS{../idVendor}"]),
        (smarter, ["smarter-ttyacm"], ["`^ttyUSB[0-9]*$` is left out: plugin.shares: ", "`^snd$` is left out: "]),
        (kubevirt, ["qat"], ["nodomain is left out: plugin.resource: "]),
    ):
        resolve(Config.model_validate(found.config))
        assert [*found.config["classes"]["define"]] == names
        assert "generic" not in found.config
        assert all(any(words in note for note in found.notes) for words in left)
        assert not found.serves_the_same


def test_a_usb_device_by_its_id_is_served_and_its_interfaces_are_no_devices(tmp_path):
    """The node is the one of usbfs."""
    device = "pci0000:00/usb1/1-1"
    tree = [
        *entry(device, "bus/usb/devices", "189:1", "bus/usb/001/002", idVendor="046d"),
        *entry(f"{device}/1-1:1.0", "bus/usb/devices"),
    ]
    root = written(tmp_path / "host", tree)

    for key in ("ATTR", "ATTRS"):
        config = akri(f'SUBSYSTEM=="usb", {key}{{idVendor}}=="046d"').config
        assert served(root, config) == {"akri.sh/akri-udev": ["1-1"]}
