"""CDI specs: the edits of a name, the file as text, legal names, the file of a name. Pure.

The rules are those of the Container Device Interface specification,
<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>. A name is `vendor/class=device`; a kind
alone, `vendor/class`, stands for the edits of every device of the kind.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from devherd._native import vendors

if TYPE_CHECKING:
    from devherd._native import Edits, Mount

ContainerEdits = dict[str, Any]
"""A containerEdits object of a spec."""

ALL = "all"
"""The device that is all present devices of its kind."""

_ONE_FILE_A_DEVICE = {row.cdi_file_a_device for row in vendors()} - {None}
"""Vendors, in CDI names, whose own plugin writes a file for each device; others write one for each kind."""

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
    if kind.partition("/")[0] in _ONE_FILE_A_DEVICE:
        return f"{kind}-{device}.yaml".replace("/", "-")  # JSON is YAML
    return f"{kind}.json".replace("/", "-")


def container_edits(edits: "Edits") -> ContainerEdits:
    """The edits of a name as a spec has them, without empty parts."""
    parts: ContainerEdits = {
        "env": [f"{name}={value}" for name, value in edits.envs.items()],
        "deviceNodes": [
            {"path": node.container_path}
            | ({"hostPath": node.host_path} if node.host_path != node.container_path else {})
            | ({"permissions": node.permissions} if node.permissions else {})
            | (dict(zip(("gid", "fileMode"), node.access, strict=True)) if node.access else {})
            for node in edits.nodes
        ],
        "additionalGids": sorted({node.access[0] for node in edits.nodes if node.access}),
        "mounts": [
            {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": _options(mount)}
            for mount in edits.mounts
        ],
        "hooks": [
            {"hookName": hook.hook_name, "path": hook.path} | ({"args": hook.args} if hook.args else {})
            for hook in edits.hooks
        ],
    }
    return {part: items for part, items in parts.items() if items}


def spec_text(edits: Mapping[str, ContainerEdits], present: Collection[str]) -> str | None:
    """The spec of the names in one file; None without any device.

    Where a file holds a whole kind, the `present` names are also offered together, as `all`.
    """
    parsed = dict(edits)
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


def read(text: str) -> dict[str, ContainerEdits]:
    """What `spec_text` was given. Raises ValueError, KeyError or TypeError for what it did not write."""
    spec = json.loads(text)
    kind = spec["kind"]
    edits: dict[str, ContainerEdits] = {f"{kind}={each['name']}": each["containerEdits"] for each in spec["devices"]}
    if len(edits) > 1:
        edits.pop(f"{kind}={ALL}", None)  # it is made anew from those present
    common = spec.get("containerEdits")
    return edits | ({kind: common} if common else {})


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


def host_nodes(edits: ContainerEdits) -> list[str]:
    """The device nodes that must exist on the host for these edits."""
    return [node.get("hostPath", node["path"]) for node in edits.get("deviceNodes", ())]


def _options(mount: "Mount") -> list[str]:
    return mount.options or ["rbind", "rprivate", "ro" if mount.read_only else "rw"]


def _all(edits: Iterable[ContainerEdits], part: str) -> Iterable[ContainerEdits]:
    return (item for each in edits for item in each.get(part, ()))


def _union(edits: Iterable[ContainerEdits]) -> ContainerEdits:
    """All of it, everything once."""
    union: ContainerEdits = {}
    for each in edits:
        for part, items in each.items():
            known = union.setdefault(part, [])
            known.extend(item for item in items if item not in known)
    return union
