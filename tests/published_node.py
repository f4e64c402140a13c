"""The files of a node whose devices are published: as the scanner and the processes of the drivers write them."""

import functools
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from devherd import spool
from devherd._native import Device
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.objects import slices_of
from devherd.dra.pool_files import PoolFiles
from devherd.inventory import DevicesFile, Inventory
from devherd.offers.rules import arrange
from devherd.proto import spool_pb2
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

NODE = "node-1"


@functools.cache
def scanned(name, simulated=0):
    """The configuration and the entries of a preset with so many simulated devices; scanned once."""
    directory = Path(tempfile.mkdtemp(prefix="devherd-published-"))
    root = SimulatedNode.create(directory / "node", preset(name)).root
    more = {"simulated": [{"name": "example.com/gpu", "count": simulated}]} if simulated else {}
    config = resolve(Config.model_validate({"host_root": str(root), "front_end": "dra", **more}))
    return config, tuple(scan_once(config).inventory.entries.values())


class PublishedNode:
    """`settings` of the instance. Nothing is written before `write`."""

    def __init__(self, settings, name="amd-1", simulated=0):
        self.settings = settings
        self.config, entries = scanned(name, simulated)
        self.entries = {entry.key: entry for entry in entries}
        self.reasons = {}
        """By device: why it is Unhealthy."""
        self.away = set()
        """The devices that nobody knows any more."""
        settings.run_dir.mkdir(parents=True, exist_ok=True)

    def keys(self, driver):
        """The devices of a driver, in the order of their names."""
        return [device.key for device in self.files().pools.devices[driver]]

    def write(self):
        """devices.pb, then offers.pb."""
        entries = [entry for key, entry in self.entries.items() if key not in self.away]
        inventory = Inventory(entries)
        inventory.vendor_options = {"amd": "{}"}
        DevicesFile(self.settings.devices_file).write(inventory)
        offers = []
        for offer in arrange(self.config, entries, "cdi").offers:
            made = spool_pb2.Offer(name=offer.name, vendor=offer.vendor, front_end=spool.DRA_FRONT_END)
            for offered in offer.devices:
                vendor, card, device = key = offered.entry.key
                reasons = self.reasons.get(key, ())
                made.devices.add(vendor=vendor, card=card, id=device, rule=offered.rule, reasons=reasons)
            offers.append(made)
        spool.write(self.settings.offers_file, spool_pb2.Offers(offers=offers, version=time.time_ns()))

    def register(self, *drivers, process="a"):
        """As the kubelet does."""
        state = spool_pb2.DraState(
            drivers=[
                spool_pb2.DraDriver(name=name, registered=True, registered_timestamp_seconds=1) for name in drivers
            ]
        )
        file = spool.path_of(self.settings.dra_directory, process)
        file.parent.parent.mkdir(exist_ok=True)
        spool.write(file, state)

    def gone(self, key, since=1.0):
        """A device that the last scan did not find; None: it is back."""
        self.entries[key] = replace(self.entries[key], gone_since=since)
        self.reasons[key] = ["gone"] if since is not None else []

    def read_anew(self, key, fact):
        """A source will tell this fact."""
        entry = self.entries[key]
        of = entry.device
        names = {"vendor": of.vendor, "card": of.card, "id": of.id, "resource_name": of.resource_name}
        self.entries[key] = replace(entry, device=Device(**names, facts=of.facts, awaited={fact}))
        self.write()

    def hold(self, *devices, driver):
        """A claim holds them, by their names."""
        file = self.settings.prepared_claims_file
        prepared = [spool_pb2.PreparedDevice(pool=NODE, device=name) for name in devices]
        if not devices:
            file.unlink()
            return
        file.parent.mkdir(exist_ok=True)
        claim = spool_pb2.PreparedClaim(driver=driver, uid="uid", devices=prepared)
        spool.write(file, spool_pb2.PreparedClaims(claims=[claim]))

    def files(self):
        """The pools as a process reads them."""
        files = PoolFiles(self.settings)
        files.look()
        return files

    def wanted(self, uid):
        """The slices of every driver as they are to be."""
        made = {}
        for each in slices_of(self.files().pools, NODE, uid):
            made.setdefault(each["spec"]["driver"], []).append(each)
        return made
