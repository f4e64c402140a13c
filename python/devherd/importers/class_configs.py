"""What others say of a kind of device, as device classes: KubeVirt, smarter-device-manager, Akri's udev rules.

KubeVirt: `permittedHostDevices` of its object, pkg/virt-handler/device-manager. smarter-device-manager: the list in
its ConfigMap. Akri: `udevRules` of a Configuration, whose grammar is udev's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from devherd.config.checks import problems_of
from devherd.config.device_class import ClassDefinition
from devherd.config.errors import key_path
from devherd.config.vendors import GenericDevice
from devherd.errors import UsageError
from devherd.importers.imported import Imported, listed
from devherd.importers.manifest import content_of, section
from devherd.importers.plugin import ConfigFile, Invocation, Plugin

_SELECTOR = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4})")
_ALL_OF_A_NAME = re.compile(r"\^?((?:\\?[\w.-])+)\$?")
_NUMBERED = re.compile(r"\^?([A-Za-z_-]+)(?:\[0-9\]|\\d)[*+]?\$?")
_SUBSYSTEMS = {
    "video": "video4linux",
    "ttyUSB": "tty",
    "ttyACM": "tty",
    "ttyAMA": "tty",
    "ttyS": "tty",
    "i2c-": "i2c-dev",
    "spidev": "spidev",
    "rtc": "rtc",
    "media": "media",
    "hidraw": "hidraw",
    "sg": "scsi_generic",
}
"""The directory of /sys/class by the beginning of a node's name."""
_BUSES = frozenset({"hid", "i2c", "pci", "usb"})
"""Subsystems that are no directory of /sys/class, but of /sys/bus."""
_UDEV = re.compile(r'\s*(\w+)(?:\{([^}]*)\})?\s*(==|!=|=|\+=|:=)\s*"([^"]*)"\s*,?')
_KERNEL = re.compile(r"([\w-]+?)(?:\[0-9\]\*?|\*)?")


def _refusal(model: type[BaseModel], content: dict[str, Any]) -> str:
    """Why the configuration could not have this; empty if it can."""
    try:
        model.model_validate(content)
    except ValidationError as error:
        problem = next(problems_of(error, model))
        return f"{key_path(problem.location)}: {problem.what}"
    return ""


def _add(imported: Imported, wanted: str, definition: dict[str, Any], what: str) -> None:
    """Add a class, under a name that none has yet, if it can be one; `what` is where it is from, for people."""
    if refusal := _refusal(ClassDefinition, definition):
        imported.note_difference(f"{what} is left out: {refusal}")
        return
    name = re.sub("[^a-z0-9]+", "-", wanted.lower()).strip("-")[:36] or "device"
    known = imported.config.setdefault("classes", {}).setdefault("define", {})
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, len(known) + 2))
    known[next(one for one in names if one not in known)] = definition


def _of_kubevirt(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    permitted = section(section(section(item, "spec"), "configuration"), "permittedHostDevices")
    if permitted:
        yield ConfigFile(permitted)


def _permitted(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no flags
    imported, content = Imported("kubevirt"), file or {}
    for one in listed("pciHostDevices", content.get("pciHostDevices")):
        resource, selector = str(one.get("resourceName", "")), str(one.get("pciVendorSelector", ""))
        ids = _SELECTOR.fullmatch(selector)
        if one.get("externalResourceProvider"):
            imported.note(f"{resource} is left out: externalResourceProvider says that another plugin serves it")
        elif ids is None:
            imported.note_difference(f"{resource} is left out: `{selector}` is not VENDOR:DEVICE")
        else:
            find = {
                "bus": "pci",
                "driver": "vfio-pci",
                "vendor": f"0x{ids[1].lower()}",
                "device": f"0x{ids[2].lower()}",
            }
            definition = {"find": find, "vm": True, "plugin": {"resource": resource}}
            _add(imported, resource.rpartition("/")[2], definition, resource)
    for key, reason in (
        ("mediatedDevices", "no class serves mediated devices; `vendors.nvidia.passthrough` serves NVIDIA's vGPUs"),
        ("usb", "no class gives USB devices to virtual machines"),
    ):
        for one in listed(key, content.get(key)):
            if not one.get("externalResourceProvider"):
                imported.note_difference(f"{one.get('resourceName')} is left out: {reason}")
    if imported.config:
        imported.note("remove these from permittedHostDevices, or set externalResourceProvider: true in each")
    return imported


def smarters_in(content: Any) -> list[Any]:
    """The list of smarter-device-manager in a file, in the values of its chart, or in their text; empty if none."""
    if isinstance(content, Mapping):
        content = content.get("config")
    if isinstance(content, str):
        try:
            content = yaml.safe_load(content)
        except yaml.YAMLError:
            return []
    is_one = isinstance(content, list) and any(isinstance(each, Mapping) and "devicematch" in each for each in content)
    return list(content) if is_one else []


def _smarter(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no flags
    imported = Imported("smarter-device-manager")
    if file is None:
        raise UsageError(
            "the resources of smarter-device-manager are not in what is imported",
            "they are in its ConfigMap",
            "give both in one stream: `kubectl get daemonset,configmap -o yaml`",
        )
    for one in smarters_in(file):
        pattern, count = str(one.get("devicematch", "")), one.get("nummaxdevices", 1)
        numbered, whole = _NUMBERED.fullmatch(pattern), _ALL_OF_A_NAME.fullmatch(pattern)
        if numbered and numbered[1] in _SUBSYSTEMS:
            find = {"class": _SUBSYSTEMS[numbered[1]], "name": f"{numbered[1]}{{n}}"}
            plugin: dict[str, Any] = {"resource": "smarter-devices/{name}"} | ({"shares": count} if count != 1 else {})
            definition = {"find": find, "permissions": "rwm", "plugin": plugin}
            _add(imported, f"smarter-{numbered[1]}", definition, f"`{pattern}`")
        elif whole and not numbered:
            name = whole[1].replace("\\", "")
            group = {"count": count, "paths": [{"path": f"/dev/{name}"}]}
            device = {"name": f"smarter-devices/{name}", "groups": [group]}
            if refusal := _refusal(GenericDevice, device):
                imported.note_difference(f"`{pattern}` is left out: {refusal}")
            else:
                imported.config.setdefault("generic", []).append(device)
        else:
            imported.note_difference(
                f"`{pattern}` is left out: which devices these are is not known; write a class: docs/classes.md"
            )
    return imported


def _of_akri(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    handler = section(section(item, "spec"), "discoveryHandler")
    if handler.get("name") == "udev":
        name = str(section(item, "metadata").get("name", "akri"))
        details = content_of(handler.get("discoveryDetails"), "discoveryDetails")
        yield ConfigFile({"name": name, "capacity": section(item, "spec").get("capacity", 1), "details": details})


def _akri(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no flags
    imported, content = Imported("akri"), file or {}
    name, details, capacity = str(content.get("name")), section(content, "details"), content.get("capacity", 1)
    resource = f"akri.sh/{re.sub('[^A-Za-z0-9_.-]+', '-', name)}"
    rules = listed("udevRules", details.get("udevRules"))
    if not rules:
        imported.note_difference(f"{name} has no rule of udev")
    for rule in rules:
        found = _found_by(str(rule))
        if isinstance(found, str):
            imported.note_difference(f"`{rule}` is left out: {found}")
            continue
        plugin: dict[str, Any] = {"resource": resource} | ({"shares": capacity} if capacity != 1 else {})
        definition: dict[str, Any] = {"find": found, "plugin": plugin}
        if details.get("groupRecursive") and "above" in found:
            definition |= {"facts": {"place": {"above": "dev"}}, "group": "place"}
        _add(imported, name, definition, f"`{rule}`")
    if imported.config:
        imported.note_difference(
            f"all devices are {resource}, where Akri has a resource for each; no pods are started for them, and no"
            " properties become variables"
        )
    return imported


def _found_by(rule: str) -> dict[str, Any] | str:
    """`find` for a rule of udev, or why there is none."""
    find: dict[str, Any] = {}
    above: dict[str, str] = {}
    rest = rule.strip()
    while rest:
        part = _UDEV.match(rest)
        if part is None or part[3] not in {"==", "="}:
            return "it has more than equalities"
        rest, key, inner, value = rest[part.end() :], part[1], part[2], part[4]
        kernel = _KERNEL.fullmatch(value)
        if key == "SUBSYSTEM":
            find["bus" if value in _BUSES else "class"] = value
        elif key == "KERNEL" and kernel:
            find["name"] = value if kernel[1] == value else f"{kernel[1]}{{n}}"
        elif key in {"ATTR", "ATTRS"} and re.search(r"[*?\[|]", value):
            return f"a class cannot say the glob `{value}`"
        elif key == "ATTR" and inner:
            find.setdefault("attr", {})[inner] = value
        elif key == "ATTRS" and inner:
            above[inner] = value
        else:
            return f"a class cannot say {key}"
    return _placed(find, above)


def _placed(find: dict[str, Any], above: Mapping[str, str]) -> dict[str, Any] | str:
    """`find` with its directory and what is `above`, or why there is no directory."""
    if find.get("bus") == "usb":  # what has an id is the USB device itself; its interfaces are entries, too
        return find | ({"attr": find.get("attr", {}) | above} if above else {})
    if find.keys().isdisjoint({"bus", "class"}):
        name = re.sub(r"\{n\}$", "", str(find.get("name", "")))
        if name not in _SUBSYSTEMS:
            return "it names no SUBSYSTEM"
        find["class"] = _SUBSYSTEMS[name]
    return find | ({"above": {"attr": above}} if above else {})


KUBEVIRT = Plugin("kubevirt", lambda _: False, _permitted, kinds={"kubevirt.io/KubeVirt": _of_kubevirt})
SMARTER = Plugin(
    "smarter-device-manager",
    lambda name: "smarter-device-manager" in name,
    _smarter,
    is_file=lambda content: bool(smarters_in(content)),
)
AKRI = Plugin("akri", lambda _: False, _akri, kinds={"akri.sh/Configuration": _of_akri})
