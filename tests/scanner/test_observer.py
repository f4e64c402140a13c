"""One scan told whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from descriptors import descriptors
from remembered import remembered

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.cordon import clear
from devherd.instance import inventory_json
from devherd.process import HOLDERS
from devherd.proto import spool_pb2
from devherd.scanner.gone import UNKNOWN_SECONDS
from devherd.scanner.observer import Observer
from devherd.scanner.once import scan_once
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


def scanned(node: SimulatedNode) -> dict[str, tuple[list[str], list[str]]]:
    """Device id → reasons, warnings."""
    report = scan_once(resolve(Config(host_root=node.root)))
    assert report.problems == []
    devices = (device for one in report.offers for device in one.devices)
    return {device.id: (list(device.reasons), list(device.warnings)) for device in devices}


def test_a_single_scan_tells_what_the_first_look_of_an_instance_would_find(tmp_path):
    """Of an error that is set nobody knows since when: a warning, as for an instance that is started now."""
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-opae-2"))
    faults.inject(node, "fpga-errors", "intel-fpga-port.0")
    faults.inject(node, "node", "intel-fpga-port.1")

    assert scanned(node) == {
        "intel-fpga-port.0": ([], ["port-error"]),
        "intel-fpga-port.1": (["node-missing"], []),
    }


def test_a_scan_changes_nothing_on_the_host(tmp_path):
    """Region mode needs CDI specs, but only a running instance writes them."""
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-1"))
    before = sorted(node.root.rglob("*"))

    report = scan_once(
        resolve(Config.model_validate({"host_root": node.root, "vendors": {"intel_fpga": {"mode": "region"}}}))
    )

    assert [device.id for one in report.offers for device in one.devices] == ["dfl-fme.0"]
    assert sorted(node.root.rglob("*")) == before


def test_a_vendor_that_is_insisted_on_and_not_found_is_a_problem(tmp_path):
    """`enabled: auto` serves what is there; `true` says that something must be, whichever the vendor."""
    vendors = ["intel_fpga", "nvidia", "amd", "intel_gpu", "xilinx_fpga", "rdma"]
    insisted = {vendor: {"enabled": True} for vendor in vendors}
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-1"))

    report = scan_once(resolve(Config.model_validate({"host_root": node.root, "vendors": insisted})))

    assert sorted(problem.vendor for problem in report.problems) == [
        "amd",
        "intel-gpu",
        "nvidia",
        "rdma",
        "xilinx-fpga",
    ]
    assert all("driver" in problem.error for problem in report.problems)


def test_what_is_told_is_plain_json(tmp_path):
    """The form of `devherd scan --output json`."""
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-1"))
    report = scan_once(resolve(Config(host_root=node.root)))

    told = inventory_json.inventory_json(report.offers, report.problems, report.duration_seconds)

    assert json.loads(json.dumps(told)) == told


def test_two_resources_may_list_the_same_path(tmp_path):
    """As while a cluster moves from one domain to another: both names serve the device, under the peer's id."""
    node = SimulatedNode.create(tmp_path / "node", preset("generic"))
    groups = [{"paths": [{"path": "/dev/kvm"}]}]
    generic = [{"name": name, "groups": groups} for name in ("squat.ai/kvm", "devic.es/kvm")]

    report = scan_once(resolve(Config.model_validate({"host_root": node.root, "generic": generic})))

    ids = {one.name: [device.id for device in one.devices] for one in report.offers}
    assert report.problems == []
    assert set(ids) == {"squat.ai/kvm", "devic.es/kvm"}
    assert ids["squat.ai/kvm"] == ids["devic.es/kvm"]


def region_observer(tmp_path) -> Observer:
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-1"))
    return Observer(
        resolve(Config.model_validate({"host_root": node.root, "vendors": {"intel_fpga": {"mode": "region"}}}))
    )


def test_a_cdi_spec_that_cannot_be_written_is_a_problem_that_names_the_file(tmp_path):
    """Unhealthy `cdi-unwritable` alone would not say where to look."""
    observer = region_observer(tmp_path)
    cdi = tmp_path / "node/var/run/cdi"
    cdi.parent.mkdir(parents=True)
    cdi.touch()

    observer.scan(0.0)

    [resource] = observer.offering.judged(observer.policy.verdicts()).offers
    assert [list(device.reasons) for device in resource.devices] == [["cdi-unwritable"]]
    [problem] = observer.problems
    assert (problem.device, problem.path) == ("dfl-fme.0", str(cdi))


def test_another_mode_leaves_the_cdi_specs_that_running_pods_hold(tmp_path):
    """The runtime looks a pod's CDI names up again at each restart of its containers."""
    observer = region_observer(tmp_path)
    observer.scan(0.0)
    spec = tmp_path / "node/var/run/cdi/intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"
    assert spec.exists()

    observer.reconfigure(resolve(Config(host_root=tmp_path / "node")))
    observer.scan(1.0)

    assert [
        device.id for one in observer.offering.judged(observer.policy.verdicts()).offers for device in one.devices
    ] == ["dfl-port.0"]
    assert spec.exists()


def test_another_probe_timeout_loses_no_pci_error(tmp_path):
    """Defect: counters began anew at the reload, and what had come since the last look at them was not counted."""
    node = SimulatedNode.create(tmp_path / "node", preset("rdma-2"))
    function = min(each.name for each in (node.root / "sys/bus/pci/drivers/mlx5_core").glob("*:*:*.*"))

    def config(timeout):
        return resolve(Config(host_root=node.root, scan={"probe_timeout": timeout}))

    observer, counted = Observer(config(2.0)), []
    for clock, timeout in enumerate((2.0, 2.0, 3.0, 1.0)):
        observer.reconfigure(config(timeout))
        observer.scan(clock)
        observer.poll(periodic=False)
        counted.append(observer.policy.raised.get(("pci-aer-fatal", "pci-aer"), 0))
        faults.inject(node, "aer", function, "fatal 3")
    assert counted == [0, 3, 6, 9]


REGION_SPEC = "node/var/run/cdi/intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"


def test_a_restarted_scanner_forgets_a_card_that_went_meanwhile_with_its_cdi_spec(tmp_path):
    """devices.pb tells it of the device, and the directory's own list of the spec."""
    before = region_observer(tmp_path)
    before.scan(0.0)
    known = remembered(before)
    node = SimulatedNode(tmp_path / "node")
    node.remove_card("dfl-port.0")

    after = Observer(before.config, inventory=known)
    after.scan(0.0)
    assert [
        list(device.reasons) for one in after.offering.judged(after.policy.verdicts()).offers for device in one.devices
    ] == [["gone"]]
    assert (tmp_path / REGION_SPEC).exists()
    after.scan(1000.0)

    assert after.offering.judged(after.policy.verdicts()).offers == []
    assert not (tmp_path / REGION_SPEC).exists()


def test_cdi_specs_are_not_told_in_the_spool(tmp_path):
    """They hold every library of a driver; the children hand out names."""
    observer = region_observer(tmp_path)
    observer.scan(0.0)

    [resource] = observer.offering.judged(observer.policy.verdicts()).offers

    assert [list(device.edits.cdi_devices) for device in resource.devices] == [["intel.cdi.k8s.io/fpga=dfl-fme.0"]]
    assert b"crihook" not in resource.SerializeToString()


@dataclass
class Unlooked:
    """What a poll says of a card whose look broke."""

    vendor: str = "intel-fpga"
    card: str = "0000:00:01.0"
    id: str = "dfl-fme.0"
    findings: tuple = ()
    not_looked: Mapping[str, str] = field(default_factory=lambda: {"": "defect in a look: index out of range"})


class BrokenLooks:
    """The scan core, but for its polls."""

    def __init__(self, native: object, card: str) -> None:
        self.native, self.card = native, card

    def poll_due(self, _awaited, _beat) -> list[Unlooked]:
        return [Unlooked(card=self.card)]

    def __getattr__(self, name: str) -> object:
        return getattr(self.native, name)


def test_a_defect_in_a_look_is_a_problem_with_its_message_and_no_fault_of_the_card(tmp_path, monkeypatch):
    """It was called `probe-timeout`, and the message was lost."""
    observer = region_observer(tmp_path)
    observer.scan(0.0)
    [(_, card, _)] = observer.inventory.entries
    monkeypatch.setattr(observer, "poller", BrokenLooks(observer.poller, card))

    observer.poll(periodic=True)

    [problem] = observer.problems
    assert (problem.path, problem.device, problem.error) == (card, "dfl-fme.0", "defect in a look: index out of range")
    assert observer.policy.verdicts() == {}


def test_an_error_of_a_device_that_was_fine_makes_it_unhealthy_whenever_the_device_came(tmp_path):
    """What stands at the first look is a warning. No look at a device that was fine was known, so all errors were."""
    node = SimulatedNode.create(tmp_path, preset("fpga-opae-2"))
    observer = Observer(resolve(Config(host_root=tmp_path)))
    observer.scan(0.0)
    observer.poll(periodic=True)
    faults.inject(node, "fpga-errors", "intel-fpga-port.0")
    observer.poll(periodic=False)
    assert [verdict.reasons for verdict in observer.policy.verdicts().values()] == [("port-error",)]


def test_a_look_that_was_not_due_is_no_good_look(tmp_path):
    """Sensors are read at each tenth poll. A device recovers after three good reads of them, one with each poll."""
    node = SimulatedNode.create(tmp_path, preset("fpga-1"))
    observer = Observer(resolve(Config(host_root=tmp_path)))
    observer.scan(0.0)
    observer.poll(periodic=True)
    card = min(each.name for each in (tmp_path / "sys/bus/pci/drivers/dfl-pci").glob("*:*:*.*"))
    faults.inject(node, "temperature", card)
    observer.poll(periodic=False)
    faults.clear(node, "temperature", card)
    polls = 0
    while observer.policy.verdicts():
        observer.poll(periodic=True)
        polls += 1
    assert polls == 12


@pytest.mark.parametrize(("vendor", "fault"), [("rdma", "rdma-rate"), ("intel-fpga", "link")])
def test_a_link_that_an_operator_has_made_slower_is_the_measure_from_then_on(tmp_path, vendor, fault):
    """`devherd clear`: another cable, another slot. What is slower still is worse again, also for the next scanner."""
    node = SimulatedNode.create(tmp_path / "node", preset("everything"))
    config = resolve(Config.model_validate({"host_root": node.root, "run_dir": tmp_path / "run"}))
    findings = tmp_path / "run/findings"
    observer = Observer(config, findings=findings)
    observer.scan(0.0)
    key, entry = min((key, entry) for key, entry in observer.inventory.entries.items() if key[0] == vendor)
    at = key[2] if vendor == "rdma" else entry.device.attributes["pci_address"]

    def look(value: str) -> list[str]:
        faults.inject(node, fault, at, value)
        observer.poll(periodic=False)
        return [one.finding.reason for one in observer.policy.held_against(key)]

    slow, slower = ("50 Gb/sec (2X HDR)", "2.5 Gb/sec (1X SDR)") if vendor == "rdma" else ("4", "1")
    observer.poll(periodic=False)
    assert look(slow) == ["link-degraded"]
    clear(findings, key, "link-degraded", observer.now())
    assert look(slow) == []
    assert look(slower) == ["link-degraded"]
    memories = [text for place, text in observer.remembered().memories if place[1] in {"rdma-rate", "pci-link"}]
    assert any("50000" in text or text.startswith("4 ") for text in memories)


def test_a_gone_device_stays_listed_for_a_while_before_it_is_known_who_holds_it(tmp_path):
    """Process `holders` has not answered yet: any pod may hold it. Not for ever: the kubelet may be away."""
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-opae-2"))
    holders = tmp_path / "holders.pb"
    observer = Observer(resolve(Config(host_root=node.root)), holders=holders)
    observer.scan(1.0)
    node.remove_card("intel-fpga-port.0")

    def known(clock: float) -> list[str]:
        observer.scan(clock)
        observer.poll(periodic=False)
        return sorted(key[2] for key in observer.inventory.entries)

    both, other = ["intel-fpga-port.0", "intel-fpga-port.1"], ["intel-fpga-port.1"]
    forget_after = observer.config.health.forget_after
    assert known(2.0) == both
    assert HOLDERS in observer.requests, "the process that asks the kubelet is wanted"
    assert known(2.0 + forget_after + UNKNOWN_SECONDS - 1) == both
    assert known(2.0 + forget_after + UNKNOWN_SECONDS) == other
    assert HOLDERS not in observer.requests


def with_a_gone_port(tmp_path):
    """An observer whose port intel-fpga-port.0 is gone since second 2; the file of holders, and the port's resource."""
    node = SimulatedNode.create(tmp_path / "node", preset("fpga-opae-2"))
    holders = tmp_path / "holders.pb"
    observer = Observer(resolve(Config(host_root=node.root)), holders=holders)
    observer.scan(1.0)
    name = next(
        one.name
        for one in observer.offering.judged(observer.policy.verdicts()).offers
        if one.devices[0].id == "intel-fpga-port.0"
    )
    node.remove_card("intel-fpga-port.0")
    observer.scan(2.0)
    return observer, holders, name


@pytest.mark.parametrize("is_held", [False, True])
def test_an_answer_of_the_kubelet_decides_whether_a_gone_device_stays_listed(tmp_path, *, is_held):
    """After `forget_after`, and no longer than that without a pod."""
    observer, holders, name = with_a_gone_port(tmp_path)
    answer = spool_pb2.Holders()
    if is_held:
        answer.devices.add(resource_name=name, device_id="intel-fpga-port.0", pods=["default/train"])
    holders.write_bytes(answer.SerializeToString())
    observer.scan(2.0 + observer.config.health.forget_after)
    assert (len(observer.inventory.entries) == 2) == is_held


def test_without_descriptors_a_gone_device_that_a_pod_holds_is_not_forgotten(tmp_path):
    """The scan goes on, and does not take the kubelet's answer for one that nobody holds it."""
    observer, holders, name = with_a_gone_port(tmp_path)
    holders.write_bytes(spool_pb2.Holders(devices=[held(name, "intel-fpga-port.0")]).SerializeToString())
    after = 2.0 + observer.config.health.forget_after + UNKNOWN_SECONDS
    with descriptors(0):
        observer.scan(after)
    observer.scan(after + 1.0)
    assert len(observer.inventory.entries) == 2


def held(name: str, device: str) -> spool_pb2.HeldDevice:
    """A device that a pod holds, as process `holders` writes it."""
    return spool_pb2.HeldDevice(resource_name=name, device_id=device, pods=["default/train"])


@pytest.mark.parametrize("free", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["fpga-8", "amd-8", "intel-gpu-2", "nvidia-8", "rdma-2", "xilinx-2"])
def test_a_scan_without_descriptors_for_its_files_takes_no_device_and_no_fact_away(tmp_path, name, free):
    """The host has used up its own, or the process: what cannot be opened is not absent, and no card has failed."""
    node = SimulatedNode.create(tmp_path / "node", preset(name))
    observer = Observer(resolve(Config(host_root=node.root)))

    def offered(second: float) -> list[spool_pb2.Offer]:
        observer.scan(second)
        observer.poll(periodic=False)
        return observer.offering.judged(observer.policy.verdicts()).offers

    scans = [offered(second) for second in (0.0, 1.0, 2.0)]
    with descriptors(free):
        scans += [offered(second) for second in (3.0, 4.0)]
    scans += [offered(second) for second in (5.0, 6.0)]
    assert [device.id for one in scans[2] for device in one.devices]
    assert scans[3:] == [scans[2]] * 4
