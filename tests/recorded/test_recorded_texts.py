"""Texts that drivers and kernels have printed, each with its source, and the verdict on the device they are about."""

import tomllib
from pathlib import Path

import pytest

from devherd._native import Device, Fact, KernelLog
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.held import Now
from devherd.health.kernel_log import KernelLogSource
from devherd.health.policy import Policy, Verdict
from devherd.inventory import Entry
from devherd.reasons.kernel_log_rules import compiled_from, in_force
from devherd.scanner.observer import Observer
from devherd_sim.node.kernel_events import KernelLog as SimulatedLog
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

RECORDED = tomllib.loads(Path(__file__).with_name("kernel_log.toml").read_text("utf-8"))["recorded"]


def verdict_on(recorded, directory) -> Verdict:
    """The verdict after these records, from second 100 on, each a second after the one before."""
    log = SimulatedLog(directory)
    log.begin()
    for second, text in enumerate(recorded["records"]):
        log.write(text, monotonic=100.0 + second)
    rules = in_force(recorded.get("optional", ()), ())
    reader = KernelLog(str(directory), compiled_from(rules.values()), simulated=True)
    events, _, _ = reader.drain(1000)
    reader.close()
    address = Fact("text", recorded["device"], "/sys")
    facts = {"pci_address": address} | {
        name: Fact("text", text, "NVML") for name, text in recorded.get("facts", {}).items()
    }
    device = Device(vendor=recorded["vendor"], card=recorded["device"], id="it", facts=facts)
    policy = Policy(1)
    seen = KernelLogSource().match(events, rules, [Entry(device, "example.com/it")], 1).seen
    policy.note(seen, Now(1_000_000.0, recorded.get("looked_at", 200.0), "boot-1"))
    return policy.verdict((recorded["vendor"], recorded["device"], "it"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["source"][:60])
def test_what_was_recorded_of_a_device_has_this_verdict(recorded, tmp_path):
    """Each of tests/recorded/kernel_log.toml."""
    expected = Verdict(tuple(recorded.get("unhealthy", ())), tuple(recorded.get("warnings", ())))
    assert verdict_on(recorded, tmp_path) == expected


ATTRIBUTES = tomllib.loads(Path(__file__).with_name("attributes.toml").read_text("utf-8"))["recorded"]


@pytest.mark.parametrize("recorded", ATTRIBUTES, ids=lambda recorded: recorded["source"][:60])
def test_what_an_attribute_was_recorded_to_say_is_this_finding(recorded, tmp_path):
    """Each of tests/recorded/attributes.toml: of one device among those of a node."""
    node = SimulatedNode.create(tmp_path / "node", preset(recorded["node"]))
    observer = Observer(resolve(Config(host_root=node.root)))
    observer.scan(0.0)
    key, entry = min((key, entry) for key, entry in observer.inventory.entries.items() if key[0] == recorded["vendor"])
    function = node.functions.path_of(entry.device.attributes["pci_address"])
    file = min(function.glob(recorded["file"]))
    if "before" in recorded:
        file.write_text(recorded["before"] + "\n")
    observer.poll(periodic=False)
    file.write_text(recorded["after"] + "\n")
    observer.poll(periodic=False)

    found = [(f"{one.finding.source}: {one.finding.reason}", one.action) for one in observer.policy.held_against(key)]
    assert found == ([(recorded["finding"], recorded["action"])] if "finding" in recorded else [])
