"""A CDI spec file as text: legal names, where a name's spec stands, which version it needs. Pure.

The rules are those of the Container Device Interface specification,
<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>. A name is `vendor/class=device`; a kind
alone, `vendor/class`, stands for what every device of the kind brings.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Edits = dict[str, Any]
"""A containerEdits object."""

ALL = "all"
"""The device that is all present devices of its kind."""

_ONE_FILE_A_DEVICE = "intel.cdi.k8s.io"
"""Whose vendor's plugin writes a file for each device; others write one for each kind."""

_KIND = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)


def is_legal(name: str) -> bool:
    """Whether runtimes accept it: one illegal name makes them refuse the whole file."""
    kind, separator, device = name.partition("=")
    return bool(_KIND.fullmatch(kind)) and (not separator or bool(_DEVICE.fullmatch(device)))


def file_name(name: str) -> str:
    """The file that the vendor's own plugin writes, so that one it has left behind is replaced.

    Two files that name one device make runtimes refuse both.
    """
    kind, _, device = name.partition("=")
    if kind.partition("/")[0] == _ONE_FILE_A_DEVICE:
        return f"{kind}-{device}.yaml".replace("/", "-")  # JSON is YAML
    return f"{kind}.json".replace("/", "-")


def spec_text(edits: Mapping[str, str], present: Collection[str]) -> str | None:
    """The spec of names that stand in one file, given the JSON of their containerEdits; None without any device.

    Where a file holds a whole kind, the `present` names are also offered together, as `all`.
    """
    parsed = {name: json.loads(text) for name, text in edits.items()}
    kind = next(iter(edits), "").partition("=")[0]
    common = parsed.pop(kind, None)
    if not parsed:
        return None
    if file_name(kind).endswith(".json"):
        together = [parsed[name] for name in parsed if name in present] or parsed.values()
        parsed.setdefault(f"{kind}={ALL}", _union(together))
    spec: dict[str, Any] = {"cdiVersion": "", "kind": kind, "devices": []}
    spec["devices"] = [{"name": name.partition("=")[2], "containerEdits": parsed[name]} for name in parsed]
    if common:
        spec["containerEdits"] = common
    spec["cdiVersion"] = lowest_version(spec)
    return json.dumps(spec, indent=2) + "\n"


def read(text: str) -> dict[str, str]:
    """What `spec_text` was given. Raises ValueError, KeyError or TypeError for what it did not write."""
    spec = json.loads(text)
    kind = spec["kind"]
    edits = {f"{kind}={device['name']}": json.dumps(device["containerEdits"]) for device in spec["devices"]}
    if len(edits) > 1:
        edits.pop(f"{kind}={ALL}", None)  # it is made anew from those present
    common = spec.get("containerEdits")
    return edits | ({kind: json.dumps(common)} if common else {})


def lowest_version(spec: Mapping[str, Any]) -> str:
    """The oldest version that has all that the spec uses: the older, the more runtimes accept it."""
    names = [device["name"] for device in spec["devices"]]
    edits = [device["containerEdits"] for device in spec["devices"]] + [spec.get("containerEdits", {})]
    if any("additionalGids" in each or "intelRdt" in each for each in edits):
        return "0.7.0"
    if "." in spec["kind"].partition("/")[2]:
        return "0.6.0"
    if any(name[0].isdigit() for name in names) or any("hostPath" in node for node in _all(edits, "deviceNodes")):
        return "0.5.0"
    return "0.4.0" if any("type" in mount for mount in _all(edits, "mounts")) else "0.3.0"


def host_nodes(edits: str) -> list[str]:
    """The device nodes that must exist on the host for these edits, given as JSON."""
    return [node.get("hostPath", node["path"]) for node in json.loads(edits).get("deviceNodes", ())]


def _all(edits: Iterable[Edits], part: str) -> Iterable[Edits]:
    return (item for each in edits for item in each.get(part, ()))


def _union(edits: Iterable[Edits]) -> Edits:
    """All of it, everything once."""
    union: Edits = {}
    for each in edits:
        for part, items in each.items():
            known = union.setdefault(part, [])
            known.extend(item for item in items if item not in known)
    return union
