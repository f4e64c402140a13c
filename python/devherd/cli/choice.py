"""Which resources and devices a command shows: `--resource`, `--vendor`, `--unhealthy`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from devherd._native import vendors
from devherd.cli.named_device import unknown
from devherd.proto import spool_pb2
from devherd.selection import fits_any


@dataclass(frozen=True, slots=True)
class Choice:
    """Globs of names, empty for all; and whether only devices that are unhealthy or warned of are wanted."""

    resources: Sequence[str] = ()
    vendors: Sequence[str] = ()
    unhealthy: bool = False

    def require(self, resources: Sequence[spool_pb2.Resource]) -> None:
        """Raises UsageError for a name that there is not."""
        for glob in self.absent(resources):
            raise unknown("resource", glob, [resource.name for resource in resources])
        known = sorted({row.name for row in vendors()})
        for glob in _not_among(known, self.vendors):
            raise unknown("vendor", glob, known)

    def absent(self, resources: Sequence[spool_pb2.Resource]) -> list[str]:
        """The names of resources that there are not: one that there was may have gone."""
        return _not_among([resource.name for resource in resources], self.resources)

    def among(self, resources: Sequence[spool_pb2.Resource]) -> list[spool_pb2.Resource]:
        """Those that are meant, with the devices that are meant."""
        meant = [
            resource
            for resource in resources
            if (not self.resources or fits_any(resource.name, self.resources))
            and (not self.vendors or fits_any(resource.vendor, self.vendors))
        ]
        return [noted for resource in meant if (noted := only_noted(resource)).devices] if self.unhealthy else meant


def _not_among(known: Sequence[str], globs: Sequence[str]) -> list[str]:
    return [glob for glob in globs if not any(fits_any(name, [glob]) for name in known)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--resource", metavar="GLOB", action="append", default=[], help="only these resources; can be given again"
    )
    parser.add_argument(
        "--vendor", metavar="GLOB", action="append", default=[], help="only devices of these vendors; likewise"
    )
    parser.add_argument("--unhealthy", action="store_true", help="only devices that are unhealthy or have a warning")


def choice_of(arguments: argparse.Namespace) -> Choice:
    """What the options say."""
    vendors = [vendor.replace("_", "-") for vendor in arguments.vendor]  # as the configuration's sections are called
    return Choice(tuple(arguments.resource), tuple(vendors), arguments.unhealthy)


def only_noted(resource: spool_pb2.Resource) -> spool_pb2.Resource:
    """The resource with those of its devices of which there is something to say."""
    noted = [device for device in resource.devices if device.reasons or device.warnings]
    return spool_pb2.Resource(name=resource.name, vendor=resource.vendor, devices=noted)


def worst_first(resources: Sequence[spool_pb2.Resource]) -> list[spool_pb2.Resource]:
    """What is unhealthy before what has a warning, and that before the rest; otherwise as before."""
    made = []
    for resource in resources:
        ordered = spool_pb2.Resource(name=resource.name, vendor=resource.vendor)
        ordered.devices.extend(sorted(resource.devices, key=_badness))
        made.append(ordered)
    return sorted(made, key=lambda resource: min(map(_badness, resource.devices), default=2))


def _badness(device: spool_pb2.Device) -> int:
    return 0 if device.reasons else 1 if device.warnings else 2
