"""Makes the offers from the known devices and their verdicts. Unchanged offers are kept."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from devherd._native import Edits, Platform, Scanner
from devherd.config.resolved import ResolvedConfig
from devherd.health.lost import present
from devherd.health.policy import Verdict
from devherd.inventory import CDI, DEVICE_PLUGIN, DeviceKey, Entry, Inventory
from devherd.offers import config_warnings, rules
from devherd.offers.device_plugin import Maker, ServedOffer
from devherd.offers.made import DraOffers, Judge, MadeOffer
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import CORDONED, FACTS, RESOURCE
from devherd.scanner.core import edits_for


@dataclass(frozen=True)
class NodeOffers:
    """The offers of `entries` under `config` without regard to health, and the form in which they are written."""

    config: ResolvedConfig
    entries: Collection[Entry]
    offers: rules.Offers
    made: "WrittenOffers"

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


@dataclass(frozen=True)
class WrittenOffers:
    """What is written of offers: those that a process serves to the kubelet's device plugin API, and those of DRA."""

    served: Sequence[ServedOffer] = ()
    by_dra: Sequence[MadeOffer] = ()
    problems: Sequence[spool_pb2.Problem] = ()
    """The problems of devices that are not offered, or not as they should be."""

    @cached_property
    def all(self) -> list[MadeOffer]:
        """All offers, in whatever way."""
        return [*(one.offer for one in self.served), *self.by_dra]

    @property
    def offers(self) -> list[spool_pb2.Offer]:
        """The same as messages."""
        return [made.message for made in self.all]


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
        self._judge, self._judge_dra = Judge[ServedOffer](), Judge[MadeOffer]()
        self._current: tuple[tuple[int, int], NodeOffers] | None = None
        self.reconfigure(config)

    def reconfigure(self, config: ResolvedConfig) -> None:
        """Use another configuration."""
        self._config = config
        self._configured += 1

    @property
    def is_dra(self) -> bool:
        """Whether devices are given by Dynamic Resource Allocation."""
        return self._config.is_dra

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
            self._arranger = rules.Arranger(self._config, self._config.way)
            self._maker = Maker(self.edits_of, self._native.processor_nodes)
            self._dra = DraOffers(partial(self.edits_of, way=CDI))
            self._made_for = made_for
        entries = self._inventory.entries.values()
        offers = self._arranger.arrange(entries)
        return NodeOffers(self._config, entries, offers, self._written(offers))

    def _written(self, offers: rules.Offers) -> WrittenOffers:
        if self._config.is_dra:
            by_dra = self._dra.make(offers)
            return WrittenOffers(by_dra=by_dra.offers, problems=by_dra.problems)
        by_plugin = self._maker.make(offers)
        return WrittenOffers(by_plugin.served, problems=by_plugin.problems)

    def judged(self, verdicts: Mapping[DeviceKey, Verdict]) -> WrittenOffers:
        """The offers with these verdicts applied. An unchanged offer is the same object as before."""
        made = self.without_health().made
        return WrittenOffers(
            self._judge.judge(made.served, verdicts), self._judge_dra.judge(made.by_dra, verdicts), made.problems
        )

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
