"""What devherd publishes of a simulated node, for the tests beside it."""

import re

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.classes import classes_of
from devherd.dra.objects import slices_of
from devherd.dra.pools import pools_of
from devherd.offers.rules import arrange
from devherd.scanner.once import scan_once

NODE = "node-1"
SIZES = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}


def number(quantity):
    """A quantity as a number."""
    digits, suffix = re.fullmatch(r"(\d+)(\D*)", quantity).groups()
    return int(digits) * SIZES[suffix]


def resolved(root, config=None):
    """The configuration under which DRA publishes."""
    return resolve(Config.model_validate({"host_root": str(root), "front_end": "dra", **(config or {})}))


def published(root, config=None):
    """The pools, classes, and notices of both, of a tree under a configuration."""
    chosen = resolved(root, config)
    report = scan_once(chosen)
    pools = pools_of(arrange(chosen, report.inventory.entries.values(), "cdi"), report.judged)
    classes, notices = classes_of(pools, chosen.resources)
    return pools, classes, [f"{one.what}: {one.why}" for one in (*pools.notices, *notices)]


def devices_of(pools, driver):
    """By name: attributes by name and kind, and capacities as numbers, as the slices have them."""
    return {
        device["name"]: (
            device["attributes"],
            {name: number(each["value"]) for name, each in device.get("capacity", {}).items()},
        )
        for made in slices_of(pools, NODE)
        if made["spec"]["driver"] == driver
        for device in made["spec"].get("devices", [])
    }
