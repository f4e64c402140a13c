"""Devices that no scan finds any more: which pods hold them, which of them are lost, which may be forgotten."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from devherd import spool
from devherd._native import Scan, pci_driver
from devherd.config.resolved import ResolvedConfig
from devherd.health.held import Now
from devherd.health.lost import Host, LostDevices, News, Vanished, orders_file
from devherd.health.policy import FINE, Policy
from devherd.health.verdicts import held_messages
from devherd.inventory import DeviceKey, Inventory, class_key
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import GONE
from devherd.scanner.core import vendor_options
from devherd.scanner.offering import Offering

UNKNOWN_SECONDS = 30.0
"""How much longer than `forget_after` a device stays listed while nobody can say whether a pod holds it."""


class GoneDevices:
    """Tracks the devices that are gone: which pods hold them, and which of them are lost.

    `holders`: the file of process `holders`, which runs while a device is gone. `claims`: that of prepared claims, in
    its place with DRA. `findings`: the directory with the orders of `devherd forget`.
    """

    def __init__(
        self,
        lost: LostDevices,
        inventory: Inventory,
        policy: Policy,
        offering: Offering,
        *,
        findings: Path | None,
        holders: Path | None,
        claims: Path | None = None,
    ) -> None:
        self.lost = lost
        self.misses_any = bool(lost)
        """Whether any device was lost, forgotten or awaited at the last scan."""
        self.news: list[News] = []
        """Changes of lost devices that no caller has taken yet."""
        self._inventory, self._policy, self._offering = inventory, policy, offering
        self._findings = findings
        self._holders, self._claims = holders, claims
        self._began: float | None = None
        """Monotonic second of the first scan."""

    @property
    def needs_holders(self) -> bool:
        """Whether process `holders` must report which pods hold devices: a device is gone."""
        return self._inventory.has_gone and self._holders is not None and not self._offering.is_dra

    def held(self, clock: float, forget_after: float) -> dict[DeviceKey, list[str]]:
        """The gone devices that pods hold, with these pods, as far as is known before a scan at `clock`.

        Until `holders` has answered, each gone device counts as held, for at most UNKNOWN_SECONDS longer than
        `forget_after`. If the answer cannot be read for lack of descriptors, each gone device counts as held.
        """
        if self._offering.is_dra:
            return self._held_by_claims() if self._inventory.has_gone and self._claims is not None else {}
        if self._holders is None or not self._inventory.has_gone:
            return {}
        gone = ((key, entry.gone_since) for key, entry in self._inventory.entries.items())
        if not self._holders.exists():
            limit = forget_after + UNKNOWN_SECONDS
            return {key: [] for key, since in gone if since is not None and clock - since < limit}
        try:
            answer = spool.read_or_empty(self._holders, spool_pb2.Holders)
        except OSError:
            return {key: [] for key, since in gone if since is not None}
        pods = {(one.resource_name, one.device_id): one.pods for one in answer.devices}
        held: dict[DeviceKey, list[str]] = {}
        for offer in self._offering.without_health().made.all if pods else ():
            for key, device_id in ((key, one) for key, ids in offer.ids.items() for one in ids):
                if (offer.name, device_id) in pods:
                    of_device = held.setdefault(key, [])
                    of_device += [pod for pod in pods[offer.name, device_id] if pod not in of_device]
        return held

    def _held_by_claims(self) -> dict[DeviceKey, list[str]]:
        """The gone devices of prepared claims, without pods; each gone device if the file cannot be read."""
        from devherd.dra.pools import pools_of  # noqa: PLC0415 - hardly any scanner needs it

        assert self._claims is not None
        try:
            claims = spool.read(self._claims, spool_pb2.PreparedClaims).claims
        except FileNotFoundError:
            return {}
        except (OSError, spool.SpoolError):
            return {key: [] for key, entry in self._inventory.entries.items() if entry.gone_since is not None}
        held = {(claim.driver, device.device) for claim in claims for device in claim.devices}
        unpublished = pools_of(self._offering.without_health().offers, {}).unpublished if held else {}
        return {key: [] for key, one in unpublished.items() if (one.driver, one.name) in held}

    def take_orders(self) -> None:
        """Apply the operator's orders: forget these lost devices."""
        if self.lost and self._findings is not None:
            with contextlib.suppress(OSError):  # no descriptor is left: the next scan reads it
                self.lost.forget(spool.read_or_empty(orders_file(self._findings), health_pb2.Forget).orders)

    def observe(
        self,
        scan: Scan,
        clock: float,
        now: Now,
        *,
        config: ResolvedConfig,
        dropped: Collection[str],
        held: Mapping[DeviceKey, Sequence[str]],
    ) -> None:
        """Apply a scan at monotonic second `clock`, after the inventory and the policy have applied it.

        `dropped`: the vendors and classes whose options have changed since the previous scan; what such a class no
        longer finds is not lost. `held`: the result of method `held`.
        """
        self._began = clock if self._began is None else self._began
        if not (self.lost or self._inventory.has_gone):
            return
        driver_at = partial(pci_driver, str(config.host_root))
        served = [*scan.vendors, *(one for one in vendor_options(config) if one.startswith(class_key("")))]
        host = Host(self._inventory.entries, served, dropped, driver_at, now.wall)
        vanished = (one for one in self._vanished(clock, now, held) if one.entry.configured_by not in dropped)
        self.news += self.lost.observe(vanished, host)
        if self.lost.is_waiting and clock - self._began >= config.health.forget_after:
            self.news += self.lost.end_of_waiting(host)
        self.misses_any = bool(self.lost)

    def _vanished(self, clock: float, now: Now, held: Mapping[DeviceKey, Sequence[str]]) -> Iterator[Vanished]:
        """The devices that are listed, gone, and Unhealthy because they are gone."""
        verdicts = self._policy.verdicts()
        for offer in self._offering.without_health().offers.offers:
            for entry in (one.entry for one in offer.devices):
                if entry.gone_since is not None and GONE in verdicts.get(entry.key, FINE).reasons:
                    since = now.wall - max(0.0, clock - entry.gone_since)
                    facts = self._offering.facts_of(entry.key)
                    findings = held_messages(self._policy, entry.key, now, facts)
                    yield Vanished(entry, offer.name, since, held.get(entry.key, ()), findings)
