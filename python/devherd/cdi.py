"""CDI specs: their text, legal names, and the directory that holds them.

A spec is written before its device is advertised, and kept while a pod may need it.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devherd import spool
from devherd._native import NaturalKey, vendors
from devherd.spool import Identity, identity_of
from devherd.text import joined_variables

if TYPE_CHECKING:
    from devherd._native import Edits, Mount
    from devherd.proto import spool_pb2

ContainerEdits = dict[str, Any]
"""A containerEdits object of a spec."""

ALL = "all"
"""The CDI device that combines all present devices of a kind."""

_ONE_FILE_A_DEVICE = {row.cdi_file_a_device for row in vendors()} - {None}
"""Vendors in CDI names whose own plugin writes a file for each device; others write one for each kind."""

_KIND = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)
Brought = Mapping[str, ContainerEdits]
"""Edits by CDI name, for a device, its kind and its companion devices."""
_READABLE_BY_ALL = 0o644
OWN_FILES = ".devherd"
"""The list of devherd's files; runtimes do not read it, because its name has no spec extension."""


def is_legal(name: str) -> bool:
    """True if runtimes accept the name: one illegal name makes them refuse the whole file."""
    kind, separator, device = name.partition("=")
    return bool(_KIND.fullmatch(kind)) and (not separator or bool(_DEVICE.fullmatch(device)))


def file_name(name: str) -> str:
    """The name of the spec file. The vendor's own plugin uses the same one, so a file that it left behind is replaced.

    Runtimes refuse a device that two files define.
    """
    kind, _, device = name.partition("=")
    if kind.partition("/")[0] in _ONE_FILE_A_DEVICE:
        return f"{kind}-{device}.yaml".replace("/", "-")  # JSON is YAML
    return f"{kind}.json".replace("/", "-")


def container_edits(edits: "Edits") -> ContainerEdits:
    """The edits as a containerEdits object, without empty parts."""
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
    """The spec for the names in one file; None if there is no device.

    A file for a whole kind also has the device `all`, with the edits of the `present` names.
    """
    parsed = dict(edits)
    kind = next(iter(edits), "").partition("=")[0]
    common = parsed.pop(kind, None)
    if not parsed:
        return None
    if file_name(kind).endswith(".json"):
        together = [parsed[name] for name in parsed if name in present] or parsed.values()
        parsed.setdefault(f"{kind}={ALL}", _union(together))
    return _text(kind, parsed, common)


def _text(kind: str, edits: Mapping[str, ContainerEdits], common: ContainerEdits | None = None) -> str:
    spec: dict[str, Any] = {"cdiVersion": "", "kind": kind, "devices": []}
    spec["devices"] = [{"name": name.partition("=")[2], "containerEdits": edits[name]} for name in edits]
    if common:
        spec["containerEdits"] = common
    spec["cdiVersion"] = lowest_version(spec)
    return json.dumps(spec, indent=2) + "\n"


def claim_spec(kind: str, members: Mapping[str, Sequence["Edits | spool_pb2.Edits"]]) -> str | None:
    """The spec with what the devices of a claim need beside their static specs; None if that is nothing.

    It has the device `{kind}={name}` for each name of `members`, unless those need nothing. `members`: the edits of
    each device by way `cdi`, under the name by which the container asks for it. The variables are joined as in an
    answer of the device plugin: the static specs cannot contain them, because a runtime keeps the last device's value
    of each.
    """
    own = {f"{kind}={name}": parts for name, edits in members.items() if (parts := _together(edits))}
    return _text(kind, own) if own else None


def _together(edits: Sequence["Edits | spool_pb2.Edits"]) -> ContainerEdits:
    variables = joined_variables(each.envs for each in edits)
    mounts = list(
        dict.fromkeys((one.host_path, one.container_path, one.read_only) for each in edits for one in each.mounts)
    )
    parts: ContainerEdits = {
        "env": [f"{name}={value}" for name, value in variables.items()],
        "mounts": [
            {"hostPath": host, "containerPath": container, "options": _binding(read_only=read_only)}
            for host, container, read_only in mounts
        ],
    }
    return {part: items for part, items in parts.items() if items}


def read(text: str) -> dict[str, ContainerEdits]:
    """The edits in a text that `spec_text` made. Raises ValueError, KeyError or TypeError for other text."""
    spec = json.loads(text)
    kind = spec["kind"]
    edits: dict[str, ContainerEdits] = {f"{kind}={each['name']}": each["containerEdits"] for each in spec["devices"]}
    if len(edits) > 1:
        edits.pop(f"{kind}={ALL}", None)  # spec_text makes it again from the present devices
    common = spec.get("containerEdits")
    return edits | ({kind: common} if common else {})


def lowest_version(spec: Mapping[str, Any]) -> str:
    """The oldest version with all features that the spec uses: more runtimes accept an older one."""
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
    return mount.options or _binding(read_only=mount.read_only)


def _binding(*, read_only: bool) -> list[str]:
    return ["rbind", "rprivate", "ro" if read_only else "rw"]


def _all(edits: Iterable[ContainerEdits], part: str) -> Iterable[ContainerEdits]:
    return (item for each in edits for item in each.get(part, ()))


def _union(edits: Iterable[ContainerEdits]) -> ContainerEdits:
    """The union of edits, without duplicates."""
    union: ContainerEdits = {}
    for each in edits:
        for part, items in each.items():
            known = union.setdefault(part, [])
            known.extend(item for item in items if item not in known)
    return union


class CdiDirectory:
    """devherd's specs in one directory. `host_root` is the directory below which their device nodes are looked up."""

    def __init__(self, directory: Path, host_root: Path) -> None:
        self._directory = directory
        self._own = _read_own(directory)
        self._edits: dict[str, ContainerEdits] = _usable(self._read_left_behind(), host_root)
        self._texts: dict[str, str] = {}
        self._left: dict[str, tuple[Identity, str]] = {}
        self.want([], [])

    def want(self, present: Iterable[Brought], remembered: Iterable[Brought]) -> None:
        """Set the wanted content of the specs, from the edits of each device by name.

        If several devices have edits for one name, the first one's are used.
        """
        wanted: dict[str, ContainerEdits] = {}
        for edits in present:
            _add(wanted, edits)
        names = frozenset(wanted)
        for edits in remembered:
            _add(wanted, edits)
        self._edits = self._edits | wanted
        by_file: dict[str, dict[str, ContainerEdits]] = {}
        for name in sorted(self._edits, key=NaturalKey):
            by_file.setdefault(file_name(name), {})[name] = self._edits[name]
        texts = {file: spec_text(edits, names & edits.keys()) for file, edits in by_file.items()}
        self._texts = {file: text for file, text in texts.items() if text is not None}

    @property
    def names(self) -> AbstractSet[str]:
        """The names in the specs, of remembered devices, too."""
        return self._edits.keys()

    def withdraw(self, names: Collection[str]) -> None:
        """Drop the names of a forgotten device; names that other devices also use are restored by `want`."""
        for name in names:
            self._edits.pop(name, None)

    def publish(self) -> dict[str, OSError]:
        """Write the wanted content; returns the error for each name that could not be written."""
        failed = {file: error for file, text in self._texts.items() if (error := self._put(file, text)) is not None}
        for file in self._own.keys() - self._texts.keys():
            self._remove(file)
        return {name: failed[file] for name in self._edits if (file := file_name(name)) in failed}

    def _put(self, file: str, text: str) -> OSError | None:
        path = self._directory / file
        if self._is_current(file, text):
            return None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._note_own({**self._own, file: _digest(text)})
            _replace(path, text)
        except OSError as error:
            return error
        self._note_left(file, text)
        return None

    def _is_current(self, file: str, text: str) -> bool:
        identity = identity_of(self._directory / file)
        if identity is not None and self._left.get(file) == (identity, text):
            return True
        if identity is None or _read(self._directory / file) != text or self._own.get(file) != _digest(text):
            return False
        self._note_left(file, text)
        return True

    def _remove(self, file: str) -> None:
        text = _read(self._directory / file)
        try:
            if text is not None and _digest(text) == self._own[file]:
                (self._directory / file).unlink(missing_ok=True)
            self._note_own({name: digest for name, digest in self._own.items() if name != file})
        except OSError:
            return  # the directory is read-only: the next call of publish tries again

    def _note_left(self, file: str, text: str) -> None:
        identity = identity_of(self._directory / file)
        if identity is not None:
            self._left[file] = identity, text

    def _note_own(self, own: dict[str, str]) -> None:
        if own == self._own:
            return
        if own:
            _replace(self._directory / OWN_FILES, json.dumps(own, indent=2) + "\n")
        else:
            (self._directory / OWN_FILES).unlink(missing_ok=True)
        self._own = own

    def _read_left_behind(self) -> dict[str, ContainerEdits]:
        edits: dict[str, ContainerEdits] = {}
        for file, digest in self._own.items():
            text = _read(self._directory / file)
            if text is not None and _digest(text) == digest:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # written by another version
                    edits |= read(text)
        return edits


def _add(wanted: dict[str, ContainerEdits], brought: Brought) -> None:
    for name, edits in brought.items():
        if is_legal(name):
            wanted.setdefault(name, edits)


def _usable(edits: dict[str, ContainerEdits], host_root: Path) -> dict[str, ContainerEdits]:
    """The edits whose device nodes all exist."""
    return {
        name: brought
        for name, brought in edits.items()
        if all((host_root / node.lstrip("/")).exists() for node in host_nodes(brought))
    }


def _read_own(directory: Path) -> dict[str, str]:
    try:
        own = json.loads((directory / OWN_FILES).read_text())
    except (OSError, ValueError):
        return {}  # without the list, no file here counts as devherd's
    return {str(file): str(digest) for file, digest in own.items()} if isinstance(own, dict) else {}


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    spool.replace(
        path, text.encode(), _READABLE_BY_ALL
    )  # runtimes do not read the temporary file, because its name has no spec extension
