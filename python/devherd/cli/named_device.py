"""The device that a user names by resource and id, as the running instance offers it."""

import difflib

from devherd.errors import UsageError
from devherd.instance import Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import listed

_MOST_NAMED = 10
"""Names that an error message lists."""


def resource_named(herd: Herd, name: str) -> spool_pb2.Resource:
    """Raises UsageError with the resources that there are."""
    found = next((resource for resource in herd.resources if resource.name == name), None)
    if found is None:
        raise unknown("resource", name, [resource.name for resource in herd.resources])
    return found


def device_named(resource: spool_pb2.Resource, device_id: str) -> spool_pb2.Device:
    """A shared device also by its own id. Raises UsageError with the ids that there are."""
    by_id = {device.id: device for device in resource.devices} | dict(listed(resource))
    if device_id not in by_id:
        raise unknown(f"device of {resource.name}", device_id, [name for name, _ in listed(resource)])
    return by_id[device_id]


def unknown(kind: str, name: str, known: list[str]) -> UsageError:
    """The error for a name that is not among those known."""
    shown = ", ".join(known[:_MOST_NAMED]) + (f" and {len(known) - _MOST_NAMED} more" if known[_MOST_NAMED:] else "")
    close = difflib.get_close_matches(name, known, n=1)
    cure = f"did you mean `{close[0]}`?" if close else "see `devherd status`"
    return UsageError(f"no {kind} is called `{name}`", f"choose from {shown}" if known else "there is none", cure)
