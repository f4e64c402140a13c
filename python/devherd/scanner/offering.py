"""Makes the offers from the known devices and their verdicts. Unchanged offers are kept."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from devherd._native import Edits, Platform, Scanner
from devherd.config.resolved import ResolvedConfig
from devherd.health.lost import present
from devherd.health.policy import Verdict
from devherd.inventory import DEVICE_PLUGIN, DeviceKey, Entry, Inventory
from devherd.offers import config_warnings, rules
from devherd.offers.device_plugin import DevicePluginOffers, Maker
from devherd.proto import health_pb2
from devherd.reasons.registry import CORDONED, FACTS, RESOURCE
from devherd.scanner.core import edits_for


@dataclass(frozen=True)
class NodeOffers:
    """The offers of `entries` under `config` without regard to health, and the form that the device plugin serves."""

    config: ResolvedConfig
    entries: Collection[Entry]
    offers: rules.Offers
    device_plugin: DevicePluginOffers

    @cached_property
    def resource_names(self) -> dict[DeviceKey, str]:
        """The name under which each device is offered."""
        return {one.entry.key: offer.name for offer in self.offers.offers for one in offer.devices}

    @cached_property
    def config_warnings(self) -> list[str]:
        """Effects of the configuration on this node that are probably mistakes, a line each."""
        return config_warnings.config_warnings(self.config, self.entries, self.offers)

    @cached_property
    def shared_by_mps(self) -> dict[str, list[DeviceKey]]:
        """The devices that are shared through NVIDIA's MPS control daemon, by resource name."""
        return {
            offer.name: keys
            for offer in self.offers.offers
            if (keys := [one.entry.key for one in offer.devices if one.by_mps])
        }


class Offering:
    """Makes the offers of the devices in an inventory."""

    def __init__(
        self, config: ResolvedConfig, native: Scanner, inventory: Inventory, beat: Callable[[], object] | None = None
    ) -> None:
        """`beat` is called between the devices: an offer of many devices takes long."""
        self._native, self._inventory, self._beat = native, inventory, beat
        self._configured = 0
        """Number of configurations used so far."""
        self._made_for: tuple[int, Mapping[str, Platform]] | None = None
        self._current: tuple[tuple[int, int], NodeOffers] | None = None
        self.reconfigure(config)

    def reconfigure(self, config: ResolvedConfig) -> None:
        """Use another configuration."""
        self._config = config
        self._configured += 1

    @property
    def known(self) -> tuple[int, int]:
        """A value that changes whenever the inventory or the configuration changes."""
        return self._configured, self._inventory.version

    def without_health(self) -> NodeOffers:
        """The offers without verdicts. Returns the same object while `known` is unchanged."""
        known = self.known
        if self._current is None or self._current[0] != known:
            self._current = known, self._make()
        return self._current[1]

    def _make(self) -> NodeOffers:
        made_for = self._configured, self._inventory.platforms
        if made_for != self._made_for:
            self._arranger = rules.Arranger(self._config)
            self._maker = Maker(self.edits_of, self._native.processor_nodes)
            self._made_for = made_for
        entries = self._inventory.entries.values()
        offers = self._arranger.arrange(entries)
        return NodeOffers(self._config, entries, offers, self._maker.make(offers))

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> DevicePluginOffers:
        """The offers with these verdicts applied. An unchanged offer is the same object as before."""
        made = self.without_health().device_plugin
        return self._maker.judge(made, verdicts)

    def edits_of(
        self, entry: Entry, resource_name: str, *, way: str = DEVICE_PLUGIN, by_mps: bool = False
    ) -> Edits | None:
        """The container edits of a device, as `edits_for` has them."""
        if self._beat:
            self._beat()
        platforms, mps_root = self._inventory.platforms, self._config.mps_root
        return edits_for(self._native, platforms, mps_root, entry, resource_name, way=way, by_mps=by_mps)

    def facts_of(self, key: DeviceKey) -> dict[str, str]:
        """What a text for people needs to know of a device: FACTS, and RESOURCE; nothing of an unknown device."""
        entry = self._inventory.entries.get(key)
        if entry is None:
            return {}
        facts = {name: value for name in FACTS if (value := entry.device.attribute(name))}
        return facts | {RESOURCE: self.without_health().resource_names.get(key, "")}

    def present(self, verdicts: Mapping[DeviceKey, Verdict]) -> list[health_pb2.LostDevice]:
        """The devices that the next boot will miss if it does not find them."""
        offers = self.without_health().offers.offers
        offered = ((one.entry, offer.name) for offer in offers for one in offer.devices)
        return present(offered, cordoned(verdicts))


def cordoned(verdicts: Mapping[DeviceKey, Verdict]) -> list[DeviceKey]:
    """The devices that an operator has taken out of use."""
    return [key for key, verdict in verdicts.items() if CORDONED in verdict.reasons]
