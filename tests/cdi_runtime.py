"""A container runtime's view of a directory of CDI specs, after the specification.

Which files it loads, which names it knows, what a container with some of them gets. Whatever is wrong is an error.

<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>
"""

import json
from pathlib import Path

import jsonschema
import yaml

RULES = jsonschema.Draft202012Validator(json.loads((Path(__file__).parent / "cdi.schema.json").read_text()))


class CdiError(Exception):
    """Why a runtime starts no container with these names."""


class Runtime:
    """Loaded specs; names that two files give are known to be in conflict."""

    def __init__(self, directory: Path) -> None:
        self._devices: dict[str, list[tuple[dict, dict]]] = {}
        for path in sorted(directory.iterdir()):
            if path.suffix in {".json", ".yaml"}:  # whatever else is there is not read
                self._load(yaml.safe_load(path.read_text()))

    @property
    def names(self) -> set[str]:
        return set(self._devices)

    def edits(self, names: list[str]) -> dict[str, list]:
        """What a container with these names gets: a file's own edits once, then those of its devices."""
        specs = []
        edits = []
        for name in names:
            known = self._devices.get(name, [])
            if len(known) != 1:
                raise CdiError(f"{name}: {'conflict' if known else 'unresolvable'}")
            spec, device = known[0]
            if not any(spec is other for other in specs):
                specs.append(spec)
                edits.append(spec.get("containerEdits", {}))
            edits.append(device["containerEdits"])
        merged: dict[str, list] = {}
        for each in edits:
            for part, items in each.items():
                merged.setdefault(part, []).extend(items)
        return merged

    def _load(self, spec: dict) -> None:
        check(spec)
        for device in spec["devices"]:
            self._devices.setdefault(f"{spec['kind']}={device['name']}", []).append((spec, device))


def check(spec: dict) -> None:
    """Raises when a runtime would refuse the spec."""
    RULES.validate(spec)
    names = [device["name"] for device in spec["devices"]]
    if len(set(names)) < len(names):
        raise CdiError(f"a name twice in one file: {names}")
    needed = needed_version(spec)
    if _number(spec["cdiVersion"]) < _number(needed):
        raise CdiError(f"version {spec['cdiVersion']} lacks what {needed} brought")


def needed_version(spec: dict) -> str:
    """The release that brought the newest of the features that a spec uses."""
    edits = [spec.get("containerEdits", {}), *(device["containerEdits"] for device in spec["devices"])]
    uses = {
        "0.4.0": any("type" in mount for each in edits for mount in each.get("mounts", [])),
        "0.5.0": any("hostPath" in node for each in edits for node in each.get("deviceNodes", []))
        or any(not device["name"][0].isalpha() for device in spec["devices"]),
        "0.6.0": "." in spec["kind"].split("/")[1] or any("annotations" in each for each in [spec, *spec["devices"]]),
        "0.7.0": any(part in each for each in edits for part in ("intelRdt", "additionalGids")),
    }
    return max((version for version, used in uses.items() if used), default="0.3.0")


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
