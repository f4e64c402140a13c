"""Each limit of resource.k8s.io/v1, at its edge."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from publishing import NODE, number

from devherd._native import Device, Fact
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra import pools, values
from devherd.dra.classes import classes_of
from devherd.dra.objects import slices_of
from devherd.dra.pools import pools_of
from devherd.dra.tables import DeviceType, Publishable, constant, text
from devherd.health.policy import Verdict
from devherd.inventory import Entry
from devherd.offers.rules import arrange


def port(number, afu="d8424dc4", resource="example.com/fpga", **fields):
    facts = {
        "port": f"dfl-port.{number}",
        "afu_id": afu,
        "interface_id": "69528db6",
        "driver": "dfl",
        "vendor_id": "0x8086",
        "device_id": "0x0b30",
        "pci_address": f"0000:{number:02x}:00.0",
    }
    device = Device(
        vendor="intel-fpga",
        card=facts["pci_address"],
        id=fields.pop("id", f"dfl-port.{number}"),
        resource_name=resource,
        facts={name: Fact("text", value, "/file") for name, value in facts.items()},
        **fields,
    )
    return Entry(device, resource)


def hca(name, function="0000:01:00.0", gone_since=None, **facts):
    """An RDMA device, by default of the physical function."""
    known = {"ibdev": name, "pci_address": function, "device_id": "0x101b", "vendor_id": "0x15b3", **facts}
    made = {fact: Fact("text", value, "/file") for fact, value in known.items()}
    device = Device(vendor="rdma", card=function, id=name, resource_name="rdma/hca", facts=made)
    return Entry(device, "rdma/hca", gone_since=gone_since)


def alveo(number, id=None, **facts):  # noqa: A002 - as the device has it
    address = f"0000:{number:02x}:00.1"
    known = {"vendor_id": "0x10ee", "device_id": "0x5001", "pci_address": address, "driver": "xocl", **facts}
    device = Device(
        vendor="xilinx-fpga",
        card=address,
        id=id or address,
        resource_name="amd.com/u200-1",
        facts={name: Fact("text", value, "/file") for name, value in known.items()},
    )
    return Entry(device, "amd.com/u200-1")


def publish(entries, verdicts=None, config=None):
    """The pools, and the devices of all slices."""
    chosen = resolve(Config.model_validate(config or {}))
    made = pools_of(arrange(chosen, entries, "cdi"), verdicts or {})
    slices = list(slices_of(made, NODE))
    return made, slices, [device for each in slices for device in each["spec"].get("devices", [])]


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("8.0", "8.0.0"),
        ("13", "13.0.0"),
        ("570.195.03", "570.195.3"),
        ("6.19.14.31400000", "6.19.14"),
        ("1.2.3-rc.1+b", "1.2.3-rc.1+b"),
        ("1.2.3-01", "1.2.3"),
        (" 6.8.5\n", "6.8.5"),
        ("18446744073709551616.0.0", None),
        ("1.2.3-" + "a" * 58, "1.2.3-" + "a" * 58),
        ("1.2.3-" + "a" * 59, "1.2.3"),
        ("", None),
        ("v1.0", None),
        ("٣.1", None),
        ("12 monkeys", None),
        ("1.2.3rc1", None),
        ("0x1234", None),
        ("8.", "8.0.0"),
        ("1" * 5000, None),
        ("1." + "0" * 5000, None),
    ],
)
def test_a_version_is_made_semver_or_is_none(said, version):
    """Three numbers without leading zeros; what follows a third number stays only where semver has it."""
    assert values.semver(said) == version


@given(some.integers(0, 2**62), some.booleans())
@example(2**40, True)
@example(2**60, True)
@example(10**18, False)
def test_a_quantity_has_the_value_that_it_is_made_of(value, is_binary):
    """In the canonical form of Go."""
    assert number(values.quantity(value, is_binary=is_binary)) == value


@pytest.mark.parametrize(
    ("value", "is_binary", "written"),
    [
        (85520809984, True, "81559Mi"),
        (0, True, "0"),
        (1000, True, "1k"),
        (1023, True, "1023"),
        (1024, True, "1Ki"),
        (1216, True, "1216"),
        (2000, True, "2000"),
        (1000, False, "1k"),
    ],
)
def test_a_quantity_is_written_as_go_writes_it(value, is_binary, written):
    """So that what comes back from the API server is what was sent."""
    assert values.quantity(value, is_binary=is_binary) == written


@pytest.mark.parametrize(("length", "is_there"), [(64, True), (65, False)])
def test_a_string_of_65_bytes_is_left_out_for_all_of_the_type(length, is_there):
    """With a notice; the class then says what the name depends on."""
    long = f"example.com/{'n' * (length - 12)}"
    made, _, devices = publish([port(1, resource="example.com/short"), port(2, afu="f7df405c", resource=long)])
    assert ["resourceName" in device["attributes"] for device in devices] == [is_there, is_there]
    assert [notice.what for notice in made.notices] == [] if is_there else ["fpga.intel.com port"]
    classes, notices = classes_of(made, [])
    assert notices == []
    (told,) = [each for each in classes if each.extended_resource_name == long]
    assert ("afuID" in told.expression) is not is_there
    assert ("resourceName" in told.expression) is is_there


def test_a_class_reads_no_attribute_that_a_device_of_another_node_may_lack():
    """Such a read would end every allocation in the cluster; here the other node's port has no readable accelerator."""
    long = f"example.com/{'n' * 60}"
    here, _, _ = publish([port(1, resource=long)])
    ((made,), _) = classes_of(here, [])
    attributes = 'device.attributes["fpga.intel.com"]'
    assert made.expression == (
        f'device.driver == "fpga.intel.com" && {attributes}.type == "port"'
        f' && "afuID" in {attributes} && {attributes}.afuID == "d8424dc4"'
        f' && "interfaceID" in {attributes} && {attributes}.interfaceID == "69528db6"'
    )
    elsewhere, _, (device,) = publish([without(port(1, resource=long), "afu_id")])
    assert "afuID" not in device["attributes"]
    assert [made.selects(each) for each in here.devices["fpga.intel.com"]] == [True]
    assert [made.selects(each) for each in elsewhere.devices["fpga.intel.com"]] == [False]


def test_a_device_has_32_attributes_and_capacities_and_the_33rd_is_left_out_for_all(monkeypatch):
    """The needed ones come first."""
    optional = [text(f"optional{place}", "driver", is_needed=False) for place in range(2)]
    needed = [text(f"needed{place}", "driver") for place in range(30)]
    attributes = (constant("type", "port"), *optional, *needed)
    kind = DeviceType("fpga.intel.com", "port", lambda subject: subject.text("port").replace(".", "-"), attributes)
    monkeypatch.setitem(pools.TYPES, "intel-fpga", lambda _: kind)
    made, _, devices = publish([port(1), port(2)])
    assert [len(device["attributes"]) for device in devices] == [32, 32]
    assert all("optional0" in device["attributes"] for device in devices)
    (notice,) = made.notices
    assert "`optional1`" in notice.why


@pytest.mark.parametrize(("name", "is_legal"), [("a" * 32, True), ("a" * 33, False), ("9a", False), ("a.io/b", False)])
def test_an_attributes_name_is_an_identifier_of_32_characters_without_a_domain(name, is_legal, monkeypatch):
    """A name qualified by the driver's own domain would be refused by Kubernetes 1.38."""
    kind = DeviceType("fpga.intel.com", "port", lambda _: "a", (constant("type", "port"), text(name, "driver")))
    monkeypatch.setitem(pools.TYPES, "intel-fpga", lambda _: kind)
    made, _, devices = publish([port(1)])
    assert (name in devices[0]["attributes"]) is is_legal
    assert len(made.notices) == (not is_legal)


@pytest.mark.parametrize(("count", "sizes"), [(64, [64]), (65, [64, 1]), (129, [64, 64, 1])])
def test_slices_have_64_devices(count, sizes):
    """From the start: a slice of 128 would be cut anew at its first taint. Names begin as those of the Go helper."""
    _, slices, _ = publish([port(place) for place in range(count)])
    assert [len(each["spec"]["devices"]) for each in slices] == sizes
    assert [each["spec"]["pool"] for each in slices] == [
        {"name": NODE, "generation": 1, "resourceSliceCount": len(sizes)}
    ] * len(sizes)
    assert [each["metadata"] for each in slices] == [
        {"generateName": f"{index:05x}-fpga.intel.com-node-1-"} for index in range(len(sizes))
    ]


def test_devices_stand_in_the_order_of_their_numbers():
    """The scheduler takes the first that fits."""
    _, _, devices = publish([port(place) for place in (10, 9, 2)])
    assert [device["name"] for device in devices] == ["dfl-port-2", "dfl-port-9", "dfl-port-10"]


def names_of(*entries):
    """By id: the name."""
    made, _, _ = publish(entries)
    devices = [device for each in made.devices.values() for device in each]
    return {device.subject.entry.device.id: device.name for device in devices}


@pytest.mark.parametrize(
    ("make", "plain", "others"),
    [
        (lambda name: port(1, id=name), "fpga.0", ["fpga-0", "fpga_0", "FPGA.0"]),
        (hca, "mlx5_0", ["mlx5-0", "mlx5.0"]),
        (lambda name: alveo(1, id=name), "0000:01:00.1", ["0000-01-00-1", "0000:01:00-1"]),
    ],
)
def test_a_devices_name_follows_from_itself_whatever_stands_beside_it(make, plain, others):
    """A pod's claim has it by name: an id of the usual form is the name, and every other one has a suffix."""
    together = names_of(*map(make, [plain, *others]))
    assert together == {name: names_of(make(name))[name] for name in [plain, *others]}
    assert len(set(together.values())) == len(together)
    assert [name for name in together if len(together[name]) == len(plain)] == [plain]


def test_simulated_devices_of_two_resources_with_one_id_have_names_of_their_own():
    """The kubelet asks for ids that are unique in one resource alone."""
    made = [
        Entry(Device(vendor="simulated", card=name, id="gpu-0", resource_name=name), name)
        for name in ("example.com/gpu", "example.org/gpu")
    ]
    _, _, devices = publish(made)
    assert len({device["name"] for device in devices}) == 2
    (alone,) = publish(made[1:])[2]
    assert alone["name"] in {device["name"] for device in devices}


@pytest.mark.parametrize("wrong", ["_", "z" * 64, "é"])
def test_an_id_that_makes_no_label_becomes_one(wrong):
    """A DNS label of at most 63 characters."""
    _, _, (device,) = publish([port(1, id=wrong)])
    assert values.is_label(device["name"])


def without(entry, *facts):
    """The same device without these facts."""
    known = {name: fact for name, fact in entry.device.facts.items() if name not in facts}
    device = Device(
        vendor=entry.vendor,
        card=entry.device.card,
        id=entry.device.id,
        resource_name=entry.resource_name,
        facts=known,
    )
    return Entry(device, entry.resource_name)


def test_a_port_whose_accelerator_cannot_be_read_stays_a_port():
    """It is withheld beside others, for CEL reads their `afuID`; alone it is a port without one."""
    disabled = without(port(1), "afu_id")
    made, _, devices = publish([disabled, port(2)])
    assert [device["name"] for device in devices] == ["dfl-port-2"]
    assert made.withheld == {disabled.key: "its `afuID` is not known, and that of others of its type is"}
    _, _, (alone,) = publish([disabled])
    assert alone["attributes"]["type"] == {"string": "port"}
    assert "afuID" not in alone["attributes"]


def test_a_card_without_a_shell_is_no_transcoder():
    """It has none while it is flashed or reset: withheld beside cards with one, and alone a card without one."""
    flashed = alveo(1)
    made, _, devices = publish([flashed, alveo(2, vbnv="xilinx_u200", timestamp="1")])
    assert [device["name"] for device in devices] == ["0000-02-00-1"]
    assert made.withheld == {flashed.key: "its `shell` is not known, and that of others of its type is"}
    _, _, (alone,) = publish([flashed])
    assert alone["attributes"]["type"] == {"string": "fpga"}
    _, _, (media,) = publish([alveo(3, **{"class": "amd-ma35d"}, device_type="MA35")])
    assert media["attributes"]["type"] == {"string": "transcoder"}


def gpu(number, minor="0", **facts):
    known = {
        "uuid": f"GPU-{number}",
        "model": "NVIDIA H100",
        "driver_version": "580.95.05",
        "pci_address": f"0000:{number:02x}:00.0",
        **facts,
    }
    made = {name: Fact("text", value, "/file") for name, value in known.items()}
    made["minor"] = Fact("number", minor, "/file")
    device = Device(vendor="nvidia", card=f"{number}", id=f"GPU-{number}", resource_name="nvidia.com/gpu", facts=made)
    return Entry(device, "nvidia.com/gpu")


def test_of_two_devices_to_which_a_vendors_driver_gives_one_name_the_second_is_withheld():
    """Its names mean something to users: none is changed."""
    made, _, devices = publish([gpu(1), gpu(2), gpu(3, minor="3")])
    assert [device["name"] for device in devices] == ["gpu-0", "gpu-3"]
    assert made.withheld == {gpu(2).key: "its name in gpu.nvidia.com, `gpu-0`, is that of GPU-1, too"}


def test_a_device_without_a_needed_attribute_of_its_type_is_withheld_and_costs_no_other():
    """CEL that reads it would end every allocation."""
    one, two = gpu(1, brand="Nvidia"), gpu(2, minor="1")
    made, _, devices = publish([one, two])
    assert [device["name"] for device in devices] == ["gpu-0"]
    assert made.withheld == {two.key: "its `brand` is not known, and that of others of its type is"}


def test_a_needed_attribute_that_most_devices_of_a_type_lack_is_left_out_for_all():
    """Else one device that says more would cost the others."""
    made, _, devices = publish([gpu(1, brand="Nvidia"), gpu(2, minor="1"), gpu(3, minor="2")])
    assert ["brand" in device["attributes"] for device in devices] == [False, False, False]
    assert made.withheld == {}
    (notice,) = made.notices
    assert notice.why.startswith("`brand` is left out for every device of the type: 2 devices of 3 have none")


def test_an_attribute_that_is_not_needed_is_left_out_for_all_where_one_lacks_it():
    """The NUMA node, the root complex."""
    made, _, devices = publish([gpu(1, pcie_root="pci0000:00"), gpu(2, minor="1")])
    assert ["resource.kubernetes.io/pcieRoot" in device["attributes"] for device in devices] == [False, False]
    (notice,) = made.notices
    assert "`resource.kubernetes.io/pcieRoot`" in notice.why


def test_a_gpu_waits_until_it_is_known_whether_it_is_in_mig_mode():
    """In MIG mode it is published by its MIG devices alone."""
    known = gpu(1)
    device = Device(
        vendor="nvidia",
        card="1",
        id="GPU-1",
        resource_name="nvidia.com/gpu",
        facts=known.device.facts,
        awaited={"mig_mode", "serial"},
    )
    made, _, devices = publish([Entry(device, "nvidia.com/gpu")])
    assert (devices, made.withheld) == ([], {known.key: "it waits for `mig_mode`"})


def test_a_driver_whose_devices_are_all_withheld_has_one_empty_slice():
    """Which says that it runs."""
    known = gpu(1)
    device = Device(
        vendor="nvidia",
        card="1",
        id="GPU-1",
        resource_name="nvidia.com/gpu",
        facts=known.device.facts,
        awaited={"brand"},
    )
    made, slices, _ = publish([Entry(device, "nvidia.com/gpu")])
    assert made.withheld == {known.key: "it waits for `brand`"}
    assert [each["spec"] for each in slices] == [
        {
            "driver": "gpu.nvidia.com",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        }
    ]


@pytest.mark.parametrize("count", [16, 17])
def test_a_device_has_16_taints(count):
    """One is enough to keep the scheduler away; a reason and an operator's cordon are taints alike."""
    reasons = ("cordoned", *(f"reason-{place:02}" for place in range(count - 1)))
    entry = port(1)
    made, _, (device,) = publish([entry], {entry.key: Verdict(reasons)})
    assert len(device["taints"]) == 16
    assert {"key": "devherd.io/cordoned", "effect": "NoSchedule"} in device["taints"]
    assert len(made.notices) == (count > 16)


def test_a_reason_that_is_no_name_becomes_the_key_of_a_taint():
    """A qualified name of at most 63 characters."""
    entry = port(1)
    _, _, (device,) = publish([entry], {entry.key: Verdict(("external: not well!", "x" * 70))})
    assert [taint["key"] for taint in device["taints"]] == ["devherd.io/external--not-well", f"devherd.io/{'x' * 63}"]


@pytest.mark.parametrize("takes_one", [False, True])
def test_a_shared_device_may_be_allocated_several_times_and_others_of_its_type_have_one_share(takes_one):
    """Replicas of shares; a request has one unless it asks for more."""
    sharing = {"replicas": 2, "fail_requests_greater_than_one": takes_one}
    config = {"resources": [{"match": {"pci_address": "0000:01:00.0"}, "name": "example.com/s", "sharing": sharing}]}
    shared = port(1, shares=["a", "b", "c"])
    _, _, (first, second) = publish([shared, port(2)], config=config)
    assert first["allowMultipleAllocations"] is True
    valid = {"min": "1", "max": "1" if takes_one else "6", "step": "1"}
    assert first["capacity"] == {"shares": {"value": "6", "requestPolicy": {"default": "1", "validRange": valid}}}
    assert second["capacity"] == {"shares": {"value": "1"}}
    assert "allowMultipleAllocations" not in second


def test_the_node_owns_its_slices_where_its_uid_is_known():
    """They go with it."""
    made, slices, _ = publish([port(1)])
    assert "ownerReferences" not in slices[0]["metadata"]
    (owned,) = slices_of(made, NODE, "a-uid")
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "a-uid", "controller": True}
    ]


def test_a_gpu_that_is_gone_is_not_published():
    """A claim that has it keeps it; no other pod is sent here."""
    entry = port(1)
    made, _, devices = publish([Entry(entry.device, entry.resource_name, gone_since=1.0)])
    assert (devices, made.withheld) == ([], {entry.key: "it is gone"})


def test_health_and_a_cordon_are_told_apart():
    """Intel's driver has an attribute for health: a cordon is an operator's wish."""
    subject = Publishable(port(1), {}, "example.com/fpga", "", Verdict(("cordoned",)))
    assert not subject.is_ill
    assert Publishable(port(1), {}, "example.com/fpga", "", Verdict(("cordoned", "gone"))).is_ill


DIVIDED = "it is divided: only its parts can be published"


def test_a_physical_function_is_not_published_beside_its_virtual_ones():
    """Its hardware would be given twice; a rule that offers both changes nothing."""
    whole, part = hca("mlx5_0"), hca("mlx5_1", "0000:01:00.1", physfn="0000:01:00.0")
    made, _, devices = publish([whole, part])
    assert [device["name"] for device in devices] == ["mlx5-1"]
    assert made.withheld == {whole.key: DIVIDED}


def test_a_physical_function_whose_virtual_ones_are_gone_is_published():
    """What is gone is given to no pod."""
    whole, part = hca("mlx5_0"), hca("mlx5_1", "0000:01:00.1", gone_since=1.0, physfn="0000:01:00.0")
    made, _, devices = publish([whole, part])
    assert [device["name"] for device in devices] == ["mlx5-0"]
    assert made.withheld == {part.key: "it is gone"}


def test_a_subfunction_is_published_beside_the_virtual_functions_of_its_parent():
    """It has the address of the parent, and is no whole of theirs."""
    whole, part = hca("mlx5_0"), hca("mlx5_1", "0000:01:00.1", physfn="0000:01:00.0")
    made, _, devices = publish([whole, part, hca("mlx5_2", subfunction="mlx5_core.sf.4")])
    assert [device["name"] for device in devices] == ["mlx5-1", "mlx5-2"]
    assert made.withheld == {whole.key: DIVIDED}


@pytest.mark.parametrize(("is_virtual", "function"), [("true", "0000:01:00.1"), ("false", "0000:01:00.0")])
def test_an_rdma_device_is_virtual_and_of_a_physical_function_by_the_facts_that_say_so(is_virtual, function):
    """Of a virtual function, of a physical one, and of their subfunctions."""
    facts = {"virtual": is_virtual, "pf_address": "0000:01:00.0"}
    _, _, devices = publish([hca("mlx5_0", function, **facts), hca("mlx5_1", function, subfunction="sf.1", **facts)])
    for device in devices:
        assert device["attributes"]["virtual"] == {"bool": is_virtual == "true"}
        assert device["attributes"]["physicalFunction"] == {"string": "0000:01:00.0"}


def test_devices_of_a_vendor_without_a_table_are_withheld_with_the_reason():
    """A new vendor needs none to be scanned and served by the device plugin."""
    device = Device(vendor="simulated", card="", id="gpu-0", resource_name="example.com/x")
    entry = Entry(device, "example.com/x")
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(pools.TYPES, "simulated")
        made, slices, _ = publish([entry])
    assert (slices, made.withheld) == ([], {entry.key: "no driver publishes devices of its vendor"})
