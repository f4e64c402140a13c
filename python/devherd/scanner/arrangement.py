"""What the configuration makes of the devices that a node knows, whatever their health, which changes more often."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from devherd.config.resolved import Config
from devherd.inventory import DeviceKey, Entry
from devherd.offers import device_plugin, doubts, rules


@dataclass(frozen=True)
class Arrangement:
    """The resources of `entries` under `config`."""

    config: Config
    entries: Collection[Entry]
    offers: rules.Offers
    resources: device_plugin.Resources

    @cached_property
    def doubts(self) -> list[str]:
        """What the configuration does on this node that nobody can have meant: a line each."""
        return doubts.doubts(self.config, self.entries, self.offers)

    @cached_property
    def shared_by_mps(self) -> dict[str, list[DeviceKey]]:
        """By resource: the devices that it shares through NVIDIA's MPS control daemon."""
        return {
            offer.name: keys
            for offer in self.offers.offers
            if (keys := [one.entry.key for one in offer.devices if one.by_mps])
        }


def arrange(config: Config, entries: Collection[Entry], edits_of: device_plugin.EditsOf) -> Arrangement:
    """Apply the rules of `config`; `edits_of` says what a container gets of a device under a resource's name."""
    offers = rules.arrange(config, entries)
    return Arrangement(config, entries, offers, device_plugin.resources(offers, edits_of, config.mps_root or ""))
