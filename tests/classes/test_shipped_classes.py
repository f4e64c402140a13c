"""What each shipped class advertises on a tree as the kernel makes it: that of the device plugin that it stands in for.

Intel's plugins: https://github.com/intel/intel-device-plugins-for-kubernetes, v0.36.0
(76f8fcf655957d0121e333c91b5125abe4d7bc52): their answers on such trees, mounted as /sys and /dev.
KubeVirt: pkg/virt-handler/device-manager.
"""

import pytest
from class_trees import (
    DLB,
    NPU,
    QAT,
    QAT_OTHER,
    QAT_VF,
    accelerators,
    cards,
    crypto,
    data_streaming,
    load_balancers,
    media,
    misc,
    written,
)

from devherd.config.loader import resolve, valid
from devherd.scanner.once import scan_once
from devherd.spool import listed

SGX = {"sgx_enclave": "sgx_enclave", "sgx_provision": "sgx_provision", "sgx_vepc": "sgx_vepc"}
KUBEVIRT = {"kvm": "kvm", "tun": "net/tun", "vhost-net": "vhost-net"}


def everything(root):
    """The root of a host that has a device of each shipped class."""
    trees = (accelerators(), data_streaming(), load_balancers(), crypto(), cards(), media(), misc(SGX | KUBEVIRT))
    return written(root, *trees)


def report_of(root, *names):
    """One scan with these classes, and without Xilinx' own devices."""
    text = (
        f"host_root: {root}\nvendors: {{xilinx_fpga: {{enabled: false}}}}\nclasses: {{enable: [{', '.join(names)}]}}\n"
    )
    return scan_once(resolve(valid("c.yaml", text)))


def advertised(report):
    """Resource → id → the nodes of a container, their permissions, and the NUMA nodes."""
    return {
        offer.name: {
            device_id: (
                [node.host_path for node in device.edits.nodes],
                {node.permissions for node in device.edits.nodes},
                list(device.numa_nodes),
            )
            for device_id, device in listed(offer)
        }
        for offer in report.offers
    }


def alone(node, numa=()):
    """A device with one node."""
    return [node], {"rw"}, list(numa)


QUEUES = {
    "dsa": {
        "dsa.intel.com/wq-user-shared": {
            "wq-user-shared-wq0.0-0": (["/dev/dsa/wq0.0", "/dev/char/508:0"], {"rw"}, [1])
        },
        "dsa.intel.com/wq-user-dedicated": {
            "wq-user-dedicated-wq0.1-0": (["/dev/dsa/wq0.1", "/dev/char/508:1"], {"rw"}, [1])
        },
    },
    "iaa": {
        "iaa.intel.com/wq-user-dedicated": {
            "wq-user-dedicated-wq1.0-0": (["/dev/iax/wq1.0", "/dev/char/507:0"], {"rw"}, [1])
        }
    },
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("intel-npu", {"npu.intel.com/accel": {"accel0-0": alone("/dev/accel/accel0", [0])}}),
        ("intel-dsa", QUEUES["dsa"]),
        ("intel-iaa", QUEUES["iaa"]),
        ("intel-dlb", {"dlb.intel.com/pf": {"/dev/dlb0": alone("/dev/dlb0", [0])}}),
        ("intel-dlb-vf", {"dlb.intel.com/vf": {"/dev/dlb2": alone("/dev/dlb2", [0])}}),
        (
            "intel-sgx",
            {"sgx.intel.com/enclave": {f"sgx-enclave-{number}": alone("/dev/sgx_enclave") for number in range(110)}},
        ),
        (
            "intel-sgx-provision",
            {"sgx.intel.com/provision": {f"sgx-provision-{n}": alone("/dev/sgx_provision") for n in range(110)}},
        ),
        ("intel-qat", {"qat.intel.com/cy": {"0000:70:00.1": (["/dev/vfio/201", "/dev/vfio/vfio"], {"rw"}, [1])}}),
        ("tenstorrent", {"tenstorrent.com/n150": {"0": alone("/dev/tenstorrent/0", [1])}}),
        ("kvm", {"devices.kubevirt.io/kvm": {f"kvm{number}": alone("/dev/kvm") for number in range(1000)}}),
        ("tun", {"devices.kubevirt.io/tun": {f"tun{number}": alone("/dev/net/tun") for number in range(1000)}}),
        (
            "vhost-net",
            {"devices.kubevirt.io/vhost-net": {f"vhost-net{n}": alone("/dev/vhost-net") for n in range(1000)}},
        ),
        ("amd-ma35d", {"amd.com/MA35": {"0000:c1:00.0": (["/dev/ama_transcoder0"], {"rwm"}, [1])}}),
    ],
)
def test_a_class_advertises_what_its_plugin_does(tmp_path, name, expected):
    """Resource, ids, nodes, permissions and topology, on a host with devices of every class."""
    report = report_of(everything(tmp_path), name)

    assert advertised(report) == expected
    assert report.problems == []


def test_all_classes_stand_side_by_side(tmp_path):
    """No entry is found by two of them, and none takes anything from another."""
    from devherd.config.classes import shipped_names

    root = everything(tmp_path)
    alone_each = {}
    for name in shipped_names():
        alone_each |= advertised(report_of(root, name))

    assert advertised(report_of(root, *shipped_names())) == alone_each


@pytest.mark.parametrize(
    ("services", "resource"),
    [
        ("sym;asym", "cy"),
        ("asym;sym", "cy"),
        ("dc", "dc"),
        ("sym", "sym"),
        ("asym;dc", "asym-dc"),
        ("dc;asym", "dc-asym"),
        ("asym;sym;dc", "asym-sym-dc"),
        ("sym;dc;decomp", "sym-dc-decomp"),
    ],
)
def test_the_services_of_a_qat_are_its_resource_in_whichever_order_they_were_set(tmp_path, services, resource):
    """As trimServiceName and getDeviceCapabilities of the plugin; up to three since Linux 6.16.

    Documentation/ABI/testing/sysfs-driver-qat of Linux 1029436218e50168812dbc44b16bca6d35721b0b.
    """
    assert [*advertised(report_of(written(tmp_path, crypto(services)), "intel-qat"))] == [f"qat.intel.com/{resource}"]


def unlinked(path):
    """A change of a host: without this entry."""
    return lambda root: (root / path).unlink()


def written_into(path, text):
    """A change of a host: this file says something else."""
    return lambda root: (root / path).write_text(text)


def linked(*links):
    """A change of a host: links that lead elsewhere."""

    def change(root):
        for path, to in links:
            (root / path).unlink(missing_ok=True)
            (root / path).symlink_to(to)

    return change


OTHER_FUNCTION = f"sys/devices/{QAT_OTHER}"


@pytest.mark.parametrize(
    ("names", "change", "expected"),
    [
        # The plugin: none, its ids are seven.
        (["intel-npu"], written_into(f"sys/devices/{NPU}/device", "0x1234\n"), {"npu.intel.com/accel": ["accel0-0"]}),
        # The plugin: /dev/dlb0 is one of `vf`.
        (
            ["intel-dlb", "intel-dlb-vf"],
            unlinked(f"sys/devices/{DLB}/sriov_numvfs"),
            {"dlb.intel.com/vf": ["/dev/dlb2"]},
        ),
        # The plugin: `enclave` is not served either.
        (["intel-sgx-provision"], unlinked("sys/class/misc/sgx_provision"), {}),
        # The plugin: 0000:70:00.1 is one of `generic`, as in the next two.
        (["intel-qat"], unlinked(f"sys/devices/{QAT_VF}/physfn"), {}),
        (["intel-qat"], unlinked(f"sys/devices/{QAT}/qat/state"), {}),
        (["intel-qat"], written_into(f"sys/devices/{QAT}/qat/state", "down\n"), {}),
        # The plugin: 0000:70:00.2 as well, with the same node.
        (
            ["intel-qat"],
            linked(
                (f"{OTHER_FUNCTION}/driver", "../../../bus/pci/drivers/vfio-pci"),
                ("sys/bus/pci/drivers/vfio-pci/0000:70:00.2", f"../../../../devices/{QAT_OTHER}"),
                (f"{OTHER_FUNCTION}/iommu_group", "../../../kernel/iommu_groups/201"),
            ),
            {"qat.intel.com/cy": ["0000:70:00.1"]},
        ),
    ],
)
def test_what_a_plugin_answers_and_a_class_does_not(tmp_path, names, change, expected):
    """As the comments of the shipped files say: no file can."""
    root = everything(tmp_path)
    change(root)

    report = report_of(root, *names)

    assert {resource: [*devices] for resource, devices in advertised(report).items()} == expected
    assert report.problems == []


def test_a_qat_with_services_that_nobody_knows_is_a_problem_and_no_guess(tmp_path):
    """The file is named."""
    report = report_of(written(tmp_path, crypto("sym;newest")), "intel-qat")

    assert report.offers == []
    assert [(one.path.endswith("/qat/cfg_services"), "sym;newest" in one.error) for one in report.problems] == [
        (True, True)
    ]


def test_a_qat_whose_heartbeat_is_lost_is_unhealthy(tmp_path):
    """As with the plugin: `-1` in the status of its physical function."""
    root = written(tmp_path, crypto())
    (root / "sys/kernel/debug/qat_4xxx_0000:70:00.0/heartbeat/status").write_text("-1\n")

    [offer] = report_of(root, "intel-qat").offers
    assert [list(device.reasons) for device in offer.devices] == [["qat-heartbeat"]]


def test_a_qat_that_is_down_is_not_offered_and_no_problem(tmp_path):
    """Its services may be changed just then."""
    root = written(tmp_path, crypto())
    (root / "sys/devices/pci0000:70/0000:70:00.0/qat/state").write_text("down\n")

    report = report_of(root, "intel-qat")
    assert (report.offers, report.problems) == ([], [])


def test_a_transcoder_has_the_facts_of_its_board_and_of_its_function(tmp_path):
    """By `bus_id`: it is no child of its PCI function."""
    report = report_of(written(tmp_path, media()), "amd-ma35d")

    [entry] = report.inventory.entries.values()
    wanted = {
        "class": "amd-ma35d",
        "device_type": "MA35",
        "product_name": "Alveo MA35D",
        "serial": "XFL1ABC",
        "pci_address": "0000:c1:00.0",
        "vendor_id": "0x10ee",
        "pci_driver": "ama_transcoder",
    }
    assert {name: entry.device.attributes.get(name) for name in wanted} == wanted


def test_a_host_without_any_such_device_has_no_word_about_the_classes(tmp_path):
    """Whatever is enabled on a whole cluster."""
    from devherd.config.classes import shipped_names

    report = report_of(written(tmp_path, iter(["sys/class/misc/"])), *shipped_names())

    assert (report.offers, report.problems, report.notices) == ([], [], [])
