"""Selection of the resources and devices that a command shows: `--resource`, `--vendor`, `--unhealthy`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from devherd._native import vendors
from devherd.cli.instance import unknown
from devherd.config.resolved import fits_any
from devherd.proto import spool_pb2


@dataclass(frozen=True, slots=True)
class Filters:
    """Globs of names, empty for all; `unhealthy`: only devices that are unhealthy or have a warning."""

    resources: Sequence[str] = ()
    vendors: Sequence[str] = ()
    unhealthy: bool = False

    def require(self, resources: Sequence[spool_pb2.Offer]) -> None:
        """Raises UsageError for a glob that matches no known name."""
        for glob in self.absent(resources):
            raise unknown("resource", glob, [resource.name for resource in resources])
        known = sorted({row.name for row in vendors()})
        for glob in _not_among(known, self.vendors):
            raise unknown("vendor", glob, known)

    def absent(self, resources: Sequence[spool_pb2.Offer]) -> list[str]:
        """The globs that match no resource; it may have disappeared meanwhile."""
        return _not_among([resource.name for resource in resources], self.resources)

    def none_fits(self) -> str:
        """What is to be said if no device is selected."""
        named = bool(self.resources or self.vendors)
        if self.unhealthy:
            return (
                "No device of these resources and vendors is unhealthy or has a warning"
                if named
                else "No device is unhealthy or has a warning"
            )
        return "No device of these resources and vendors"

    def among(self, resources: Sequence[spool_pb2.Offer]) -> list[spool_pb2.Offer]:
        """The selected resources, with the selected devices."""
        selected = [
            resource
            for resource in resources
            if (not self.resources or fits_any(resource.name, self.resources))
            and (not self.vendors or fits_any(resource.vendor, self.vendors))
        ]
        return (
            [noted for resource in selected if (noted := only_noted(resource)).devices] if self.unhealthy else selected
        )


def _not_among(known: Sequence[str], globs: Sequence[str]) -> list[str]:
    return [glob for glob in globs if not any(fits_any(name, [glob]) for name in known)]


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--resource", metavar="GLOB", action="append", default=[], help="only these resources; can be repeated"
    )
    parser.add_argument(
        "--vendor", metavar="GLOB", action="append", default=[], help="only devices of these vendors; can be repeated"
    )
    parser.add_argument("--unhealthy", action="store_true", help="only devices that are unhealthy or have a warning")


def filters_of(arguments: argparse.Namespace) -> Filters:
    """The filters that the options ask for."""
    vendors = [vendor.replace("_", "-") for vendor in arguments.vendor]  # the configuration's sections have `_`
    return Filters(tuple(arguments.resource), tuple(vendors), arguments.unhealthy)


def only_noted(resource: spool_pb2.Offer) -> spool_pb2.Offer:
    """The resource with only those of its devices that have reasons or warnings."""
    noted = [device for device in resource.devices if device.reasons or device.warnings]
    return spool_pb2.Offer(name=resource.name, vendor=resource.vendor, devices=noted)


def worst_first(resources: Sequence[spool_pb2.Offer]) -> list[spool_pb2.Offer]:
    """Unhealthy devices first, then those with warnings, then the others; otherwise in their order."""
    made = []
    for resource in resources:
        ordered = spool_pb2.Offer(name=resource.name, vendor=resource.vendor)
        ordered.devices.extend(sorted(resource.devices, key=_badness))
        made.append(ordered)
    return sorted(made, key=lambda resource: min(map(_badness, resource.devices), default=2))


def _badness(device: spool_pb2.Device) -> int:
    return 0 if device.reasons else 1 if device.warnings else 2
