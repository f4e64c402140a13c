"""ResourceSlices as an API server keeps them: versions, preconditions, what it normalises, drops and refuses.

What a real one does with the same objects, tests/cluster/test_published_slices.py compares.
"""

import copy
import re
import secrets
import time

DECIMAL = ("", "k", "M", "G", "T", "P", "E")
NAME = re.compile(r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
FIXED = ("driver", "nodeName")


class SliceStore:
    """`dropped`: the fields that it does not know, as their feature gates are off."""

    def __init__(self, *dropped):
        self.dropped = set(dropped)
        self.slices = {}
        self.version = 100
        self.history = []
        """What has happened: version, kind of event, the slice then."""

    def of(self, driver):
        """A driver's slices, by name."""
        return [copy.deepcopy(each) for _, each in sorted(self.slices.items()) if each["spec"]["driver"] == driver]

    def create(self, body, manager="another", *, is_dry=False):
        """Status and answer."""
        made = copy.deepcopy(body)
        metadata = made["metadata"]
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = metadata["generateName"][:58] + secrets.token_hex(2)
        name = metadata["name"]
        if name in self.slices:
            return 409, status(f'resourceslices.resource.k8s.io "{name}" already exists')
        if wrong := self._wrong(made):
            return 422, status(f'ResourceSlice.resource.k8s.io "{name}" is invalid: {wrong}')
        made["spec"] = self._kept(made["spec"])
        metadata["uid"] = secrets.token_hex(8)
        if not is_dry:
            self._store("ADDED", made, manager)
        return 201, copy.deepcopy(made)

    def replace(self, name, body, manager="another"):
        """Status and answer."""
        there = self.slices.get(name)
        if there is None:
            return 404, status(f'resourceslices.resource.k8s.io "{name}" not found')
        made = copy.deepcopy(body)
        given = made["metadata"]
        if given.get("resourceVersion") not in (None, there["metadata"]["resourceVersion"]):
            return 409, status("the object has been modified; please apply your changes to the latest version")
        if given.get("uid") not in (None, there["metadata"]["uid"]):
            return 409, status("Precondition failed: UID in precondition")
        changed = [key for key in FIXED if made["spec"].get(key) != there["spec"].get(key)]
        if changed or made["spec"]["pool"]["name"] != there["spec"]["pool"]["name"]:
            return 422, status(f"spec.{(*changed, 'pool.name')[0]}: field is immutable")
        if wrong := self._wrong(made):
            return 422, status(f'ResourceSlice.resource.k8s.io "{name}" is invalid: {wrong}')
        made["spec"] = self._kept(made["spec"])
        kept = {key: there["metadata"][key] for key in ("uid", "resourceVersion", "managedFields")}
        made["metadata"] = given | kept
        if without_empties(made) != without_empties(there):
            self._store("MODIFIED", made, manager)
        return 200, copy.deepcopy(self.slices[name])

    def delete(self, name, preconditions=None):
        """Status and answer."""
        there = self.slices.get(name)
        if there is None:
            return 404, status(f'resourceslices.resource.k8s.io "{name}" not found')
        if any(there["metadata"][key] != value for key, value in (preconditions or {}).items()):
            return 409, status("Precondition failed")
        del self.slices[name]
        self.version += 1
        there = copy.deepcopy(there)
        there["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, "DELETED", there))
        return 200, status("", "Success")

    def change(self, name, change, manager="another"):
        """As somebody would who edits a slice: `change` gets a copy."""
        made = copy.deepcopy(self.slices[name])
        change(made)
        return self.replace(name, made, manager)

    def _store(self, kind, made, manager):
        self.version += 1
        metadata = made["metadata"]
        metadata["resourceVersion"] = str(self.version)
        others = [each for each in metadata.get("managedFields", ()) if each["manager"] != manager]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_800_000_000 + self.version))
        metadata["managedFields"] = [*others, {"manager": manager, "operation": "Update", "time": now}]
        self.slices[metadata["name"]] = made
        self.history.append((self.version, kind, copy.deepcopy(made)))

    def _wrong(self, slice_):
        """Why it is refused; empty if it is not."""
        if not NAME.fullmatch(slice_["metadata"]["name"]):
            return "metadata.name: Invalid value"
        devices = slice_["spec"].get("devices") or []
        most = 64 if any(each.get("taints") for each in devices) else 128
        if len(devices) > most:
            return f"spec.devices: Too many: {len(devices)}: must have at most {most} items"
        for number, device in enumerate(devices):
            for name, value in (device.get("attributes") or {}).items():
                if len(value.get("string", "")) > 64:
                    return f"spec.devices[{number}].attributes[{name}].string: Too long: may not be more than 64 bytes"
        return ""

    def _kept(self, spec):
        """The spec as it is stored."""
        made = without_empties(self._without_dropped(spec))
        for device in made.get("devices", []):
            for taint in device.get("taints", []):
                taint.setdefault("timeAdded", f"2026-11-28T00:00:{self.version % 60:02}Z")
            for capacity in device.get("capacity", {}).values():
                capacity["value"] = canonical(capacity["value"])
        return made

    def _without_dropped(self, part):
        if isinstance(part, dict):
            return {key: self._without_dropped(value) for key, value in part.items() if key not in self.dropped}
        return [self._without_dropped(each) for each in part] if isinstance(part, list) else part


def status(message, word="Failure"):
    """What the server says of a call."""
    return {"kind": "Status", "status": word, "message": message}


def without_empties(part):
    """As it comes back from protobuf: without empty maps and lists."""
    if isinstance(part, dict):
        return {key: made for key, value in part.items() if (made := without_empties(value)) not in ({}, [], None)}
    return [without_empties(each) for each in part] if isinstance(part, list) else part


def canonical(quantity):
    """`1000` is `1k`."""
    if not quantity.isdecimal():
        return quantity
    number, size = int(quantity), 0
    while number and number % 1000 == 0 and size + 1 < len(DECIMAL):
        number //= 1000
        size += 1
    return f"{number}{DECIMAL[size]}"
