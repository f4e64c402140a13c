"""Generated hosts: what is dead is never Healthy, and what is well is never condemned, whatever came before.

Each card has a life of its own: it sleeps, wakes, does not come back from sleep, and the kernel log has records
of that, of other functions and of starts that failed. Meanwhile devherd looks, starts anew, or does neither.
`DEVHERD_TEST_HOSTS` is the number of hosts of each vendor.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remembered import earlier, remembered

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import DeviceKey, Entry
from devherd.scanner.core import SECOND_LOOK_SECONDS
from devherd.scanner.host_events import ANYTHING
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

CARDS = 8
HOST = {
    "amd": NodeSpec(amd=[AmdSpec(model="mi210", cards=CARDS)]),
    "amd-vfio": NodeSpec(amd=[AmdSpec(model="mi210", driver="vfio-pci", cards=CARDS)]),
    "i915": NodeSpec(intel_gpu=[IntelGpuSpec(driver="i915", cards=CARDS)]),
    "intel-fpga": NodeSpec(fpga=[FpgaSpec(cards=CARDS)]),
    "nvidia": NodeSpec(nvidia=NvidiaSpec(gpus=CARDS)),
    "rdma": NodeSpec(rdma=[RdmaSpec(cards=CARDS)]),
    "xe": NodeSpec(intel_gpu=[IntelGpuSpec(driver="xe", cards=CARDS)]),
    "xilinx-fpga": NodeSpec(xilinx_fpga=[XilinxFpgaSpec(cards=CARDS)]),
}
VENDORS = {"amd-vfio": {"amd": {"driver_type": "pf_passthrough"}}}
"""The configuration of the vendors, where the default one offers no device."""
HOSTS = int(os.environ.get("DEVHERD_TEST_HOSTS", "4"))
ALL_ONES, ANSWER = b"\xff" * 64, bytes.fromhex("de10b423") + bytes(60)
STRANGE = "0000:00:1f.0"
"""The address of a function that is no device here."""
GOOD_LOOKS = 4
"""Enough for a finding of these hosts to end."""


class Card:
    """A card and its life; its functions live and die together."""

    def __init__(self, node: SimulatedNode, slot: str) -> None:
        self.node = node
        self.functions = sorted(one.resolve() for one in (node.root / "sys/bus/pci/devices").glob(f"{slot}.*"))
        self.has_failed_to_start = self.was_ill = False
        self.wakes()

    @property
    def address(self) -> str:
        """Of its first function."""
        return self.functions[0].name

    @property
    def is_ill(self) -> bool:
        """Whether it is to be Unhealthy: what sleeps is not asked whether it would start."""
        return self.is_dead or (self.has_failed_to_start and not self.is_asleep)

    def _power(self, state: str, status: str, config: bytes) -> None:
        for function in self.functions:
            (function / "power_state").write_text(f"{state}\n")
            (function / "power").mkdir(exist_ok=True)
            (function / "power/runtime_status").write_text(f"{status}\n")
            (function / "config").write_bytes(config)
        self.is_asleep, self.is_dead = status == "suspended", config == ALL_ONES and status != "suspended"

    def sleeps(self) -> None:
        """Who reads it now would wake it; here they read all ones."""
        self._power("D3cold", "suspended", ALL_ONES)

    def wakes(self) -> None:
        self._power("D0", "active", ANSWER)

    def dies(self) -> None:
        self._power("D3cold", "active", ALL_ONES)

    def dies_by_an_error(self) -> None:
        self._power("D3cold", "error", ALL_ONES)

    def is_said_to_be_inaccessible(self) -> None:
        """If it lives, that was before it woke."""
        self._say(self.address, "Unable to change power state from D3cold to D0, device inaccessible")
        self.was_ill = self.was_ill or self.is_asleep

    def another_is_said_to_be_inaccessible(self) -> None:
        self._say(STRANGE, "can't change power state from D3hot to D0 (config space inaccessible)")

    def _say(self, address: str, text: str) -> None:
        driver = self.node.root / "sys/bus/pci/devices" / address / "driver"
        self.node.kernel_log.write(f"{driver.resolve().name if driver.exists() else 'pcieport'} {address}: {text}")

    def fails_to_start(self) -> None:
        if self._is_nvidias and not self.has_failed_to_start:
            faults.inject(self.node, "not-started", self.address)
            self.has_failed_to_start = True

    def starts(self) -> None:
        if self.has_failed_to_start:
            faults.clear(self.node, "not-started", self.address)
            self.has_failed_to_start = False

    @property
    def _is_nvidias(self) -> bool:
        return (self.functions[0] / "driver").resolve().name == "nvidia"


Step = Callable[[Card], None]
STEPS: tuple[Step, ...] = (
    Card.sleeps,
    Card.wakes,
    Card.dies,
    Card.dies_by_an_error,
    Card.is_said_to_be_inaccessible,
    Card.another_is_said_to_be_inaccessible,
    Card.fails_to_start,
    Card.starts,
)
LIVES = st.lists(st.lists(st.sampled_from(STEPS), max_size=8), min_size=CARDS, max_size=CARDS)
MEANWHILE = st.lists(st.sampled_from(["look", "start anew", "nothing"]), min_size=8, max_size=8)
"""What devherd does after the first step of each card, after the second, …"""


class Host:
    """The cards, and what devherd knows of them."""

    def __init__(self, directory: Path, vendor: str) -> None:
        self.node = SimulatedNode.create(directory / "node", HOST[vendor])
        self._config = resolve(Config.model_validate({"host_root": self.node.root, "vendors": VENDORS.get(vendor, {})}))
        self.observer = Observer(self._config)
        self.look()
        slots = {_slot_of(entry) for _, entry in self._found()}
        assert len(slots) == CARDS
        self.cards = {slot: Card(self.node, slot) for slot in sorted(slots)}

    def _found(self) -> list[tuple[DeviceKey, Entry]]:
        return [(key, one) for key, one in self.observer.inventory.entries.items() if one.gone_since is None]

    def look(self) -> None:
        """Scan, read the log, and look at everything."""
        self.observer.scan(time.monotonic())
        self.observer.read_kernel_log()
        self.observer.poll(periodic=False, changes=ANYTHING)

    def start_anew(self) -> None:
        """Another scanner takes over what this one has left."""
        known = replace(earlier(self.observer), remembered=self.observer.remembered())
        self.observer = Observer(self._config, inventory=remembered(self.observer), earlier=known)

    def look_until_all_counts(self) -> None:
        """All ones count at a second look: until then the function may be in a reset."""
        self.look()
        if any(card.is_dead for card in self.cards.values()):
            time.sleep(SECOND_LOOK_SECONDS)
        for _ in range(GOOD_LOOKS):
            self.look()

    def reasons(self) -> dict[str, str]:
        """Why each card is Unhealthy, by slot; empty for one that is not."""
        verdicts = ((entry, self.observer.policy.verdict(key)) for key, entry in self._found())
        return {_slot_of(entry): " ".join(verdict.reasons) for entry, verdict in verdicts}


def _slot_of(entry: Entry) -> str:
    """`0000:3b:00` of a device at `0000:3b:00.0`."""
    return entry.device.attributes["pci_address"].partition(",")[0][:-2]


@pytest.mark.parametrize("vendor", HOST)
def test_what_is_dead_is_never_healthy_and_what_is_well_is_never_condemned(vendor: str) -> None:
    """In the end; what sleeps is condemned by nothing but what was true of it while it did not."""

    @settings(max_examples=HOSTS, deadline=None)
    @given(LIVES, MEANWHILE)
    def live(lives: list[list[Step]], meanwhile: list[str]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            host = Host(Path(directory), vendor)
            for moment, then in enumerate(meanwhile):
                for card, life in zip(host.cards.values(), lives, strict=True):
                    for step in life[moment : moment + 1]:
                        step(card)
                        card.was_ill = card.was_ill or card.is_ill or card.has_failed_to_start
                if then == "look":
                    host.look()
                elif then == "start anew":
                    host.start_anew()
            host.look_until_all_counts()
            reasons = host.reasons()
            for (slot, card), life in zip(host.cards.items(), lives, strict=True):
                lived = [step.__name__ for step in life]
                if card.is_ill:
                    assert reasons[slot], f"dead, and called Healthy: {lived}, {meanwhile}"
                elif not card.is_asleep or not card.was_ill:
                    assert not reasons[slot], f"well, and condemned as {reasons[slot]}: {lived}, {meanwhile}"

    live()
