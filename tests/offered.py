"""The offers of an instance, for tests that stand in for its scanner or look at what it has written."""

import time
from pathlib import Path

from devherd import spool
from devherd.health.policy import Verdict
from devherd.inventory import key_of
from devherd.offers.device_plugin import ServedOffer, resource_of
from devherd.offers.made import MadeOffer
from devherd.proto.spool_pb2 import Offer, Offers

FILE = "offers.pb"


def offers_in(run_dir: Path) -> dict[str, Offer]:
    """Every offer by its name."""
    return {offer.name: offer for offer in spool.read_or_empty(run_dir / FILE, Offers).offers}


def put(run_dir: Path, *offers: Offer) -> None:
    """Add these offers, in place of those of the same names."""
    for offer in offers:
        offer.front_end = offer.front_end or spool.DEVICE_PLUGIN_FRONT_END
    _write(run_dir, offers_in(run_dir) | {offer.name: offer for offer in offers})


def take_away(run_dir: Path, name: str) -> None:
    """Offer this resource no more."""
    _write(run_dir, {each: offer for each, offer in offers_in(run_dir).items() if each != name})


def _write(run_dir: Path, offers: dict[str, Offer]) -> None:
    spool.write(run_dir / FILE, Offers(offers=[offers[name] for name in sorted(offers)], version=time.time_ns()))


def served_of(offer: Offer) -> ServedOffer:
    """An offer that is there as a message, as the scanner makes it and its child serves it."""
    verdicts = {
        key_of(device): Verdict(tuple(device.reasons), tuple(device.warnings))
        for device in offer.devices
        if device.reasons or device.warnings
    }
    head = Offer.FromString(spool.encoded(offer))
    head.ClearField("devices")
    devices = {key_of(device): Offer(devices=[device]) for device in offer.devices}
    in_offer = {key: spool.encoded(one) for key, one in devices.items()}
    ids = {key: [name for name, _ in spool.listed(one)] for key, one in devices.items()}
    return ServedOffer(
        MadeOffer(offer.name, spool.encoded(head), in_offer, ids, verdicts),
        spool.encoded(resource_of(head)),
        {key: spool.encoded(resource_of(one)) for key, one in devices.items()},
    )
