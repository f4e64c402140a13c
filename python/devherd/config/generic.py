"""Section `generic` of the configuration file; its keys are generic-device-plugin's.

What that plugin takes for unset (a count of 0, empty permissions) has its default here as well.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from devherd.config.problem import WrongValueError
from devherd.config.section import Section
from devherd.config.values import HexadecimalId, MountedPath, OptionalPath, Permissions, ResourceName, Switch, Times


class GenericPath(Section):
    """A file of the host that goes into the container."""

    path: MountedPath
    """Its path on the host; a glob makes one device of each match."""
    mount_path: Annotated[OptionalPath, Field(alias="mountPath")] = ""
    """Its path in the container; without it, that on the host."""
    type: Literal["Device", "Mount"] = "Device"
    """Whether it is a device node, or a file or directory to be mounted."""
    permissions: Permissions = "mrw"
    """What the container may do with a device node: read, write, make."""
    read_only: Annotated[Switch, Field(alias="readOnly")] = False
    """Whether a mount is read-only."""
    limit: Times = 1
    """How many devices the path makes of each match."""
    optional: Switch = False
    """Whether the group is also there without it."""


class GenericUsb(Section):
    """A USB device that goes into the container."""

    vendor: HexadecimalId
    """Id of its vendor."""
    product: HexadecimalId
    """Id of its product."""
    serial: str | None = None
    """Its serial number; without it, any."""


class GenericGroup(Section):
    """Paths, or USB devices, that go into a container together."""

    count: Annotated[Times, Field(le=100_000)] = 1
    """How many containers may share them."""
    paths: list[GenericPath] = []
    """Files of the host."""
    usb: list[GenericUsb] = []
    """USB devices."""
    separate: Switch = False
    """Whether each USB device is a device of its own; generic-device-plugin always makes one of all."""

    @model_validator(mode="after")
    def _one_kind(self) -> "GenericGroup":
        if bool(self.paths) == bool(self.usb):
            both = bool(self.paths)
            raise WrongValueError(
                "a group has either `paths` or `usb`" + (", and not both" if both else ""),
                "make two groups of it" if both else "add one of them",
            )
        if self.separate and not self.usb:
            raise WrongValueError(
                "`separate` is for `usb`: every match of a path is a device of its own already",
                "remove it",
                at=("separate",),
            )
        return self


class GenericDevice(Section):
    """A resource made of paths or USB devices."""

    name: ResourceName
    """Its resource name."""
    groups: Annotated[list[GenericGroup], Field(min_length=1)]
    """What makes a device of it; each group makes some."""
