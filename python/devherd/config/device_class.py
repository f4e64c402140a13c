"""A device class: how devices of one kind are found, what is known of them, and what a container gets.

The same models validate `classes.define` of the configuration and the files in `python/devherd/classes`. What a class
becomes for the scan core is `ClassDefinition.native`; rust/src/vendors/classes reads it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from devherd._native import facts as declared_facts
from devherd._native import vendors
from devherd.config.class_texts import (
    PLACE,
    Drivers,
    FactName,
    FileBelow,
    NodePath,
    Pattern,
    PciIds,
    Readable,
    Reason,
    Subsystem,
    Template,
    Variable,
    Word,
    places_in,
)
from devherd.config.errors import Location, WrongValueError, echo, refuse
from devherd.config.types import Count, Permissions, Section, Switch, meant, quoted, spelt
from devherd.text import resource_name_refusal

PARTS_OF_EVERY_ENTRY: Mapping[str, str] = {
    "name": "its name in sysfs",
    "node": "the node that the kernel names, below /dev",
    "number": "that node's number, `MAJOR:MINOR`",
}
"""What a template can name besides the class's facts."""
SHARE = "share"
"""What only `plugin.id` can name: the number of the share, from 0."""
CLASS_FACT = "class"
"""The fact with the name of a device's class."""
IOMMU_GROUP = "iommu_group"
"""The fact of a device for virtual machines."""
_TAKEN = frozenset({*PARTS_OF_EVERY_ENTRY, SHARE, CLASS_FACT, IOMMU_GROUP, "vendor", "id", "resource_name"})
_MEANING: Mapping[str, str] = {
    "type": "what DRA calls the class",
    "usb_port": "the port of a device on USB",
    "usb_interface": "the interface of a device on USB",
}
"""Names of facts that mean something of every class already."""
OF_PCI = frozenset.intersection(*(frozenset(row.facts) for row in vendors() if "pci_address" in row.facts))
"""Facts that the PCI function of a device gives."""

FactKind = Literal["text", "number", "boolean", "version"]


class ClassPart(Section):
    """A section of a device class; each key has one spelling."""

    model_config = ConfigDict(populate_by_name=False)


class Above(ClassPart):
    """The nearest ancestor of the entry that fits. Parts of its name are facts, too."""

    name: Pattern | None = None
    """Its name."""
    attr: dict[FileBelow, Word] = {}
    """Files of it and the text of each: `{idVendor: 1a86}`."""

    @model_validator(mode="after")
    def _says_something(self) -> "Above":
        if self.name is None and not self.attr:
            raise WrongValueError("every ancestor fits it", "add `name` or `attr`")
        return self

    def native(self) -> dict[str, Any]:
        """For the scan core."""
        return {"name": self.name, "attr": self.attr}


class Find(ClassPart):
    """Which entries of sysfs are such devices. What does not fit is another kind, and nothing is said of it."""

    of_class: Annotated[Subsystem | None, Field(alias="class")] = None
    """The directory of `/sys/class` that lists them: `accel`."""
    bus: Subsystem | None = None
    """The directory of `/sys/bus` that lists them, instead: `pci`."""
    name: Pattern | None = None
    """Their name: `accel{n}`. A part in braces is one or more digits, and a fact."""
    driver: Drivers = []
    """The driver of the PCI function above."""
    vendor: PciIds = []
    """The PCI vendor of that function: `'0x8086'`."""
    device: PciIds = []
    """The PCI device of that function."""
    attr: dict[FileBelow, Word] = {}
    """Files of the entry and the text of each: `{state: enabled}`."""
    above: Above | None = None
    """What the nearest ancestor that counts is like, such as the USB device of a serial port."""

    @model_validator(mode="after")
    def _in_one_place(self) -> "Find":
        if self.of_class is not None and self.bus is not None:
            raise WrongValueError("it has both `class` and `bus`", "remove one of them", at=("bus",))
        if self.of_class is None and self.bus is None:
            raise WrongValueError("where to look is not said", "add `class`, a directory of /sys/class, or `bus`")
        return self

    @property
    def parts_of_the_name(self) -> list[str]:
        """The parts of `name`."""
        return places_in(self.name or "")

    @property
    def parts_above(self) -> list[str]:
        """The parts of `above.name`."""
        return places_in(self.above.name or "") if self.above else []

    @property
    def directories(self) -> list[str]:
        """Where the entries are; a PCI driver has a directory of its own functions."""
        if self.of_class is not None:
            return [f"/sys/class/{self.of_class}"]
        drivers = self.driver if self.bus == "pci" else []
        return [f"/sys/bus/pci/drivers/{driver}" for driver in drivers] or [f"/sys/bus/{self.bus}/devices"]

    def native(self) -> dict[str, Any]:
        """For the scan core."""
        return {
            "class": self.of_class,
            "bus": self.bus,
            "name": self.name,
            "driver": self.driver,
            "vendor": self.vendor,
            "device": self.device,
            "attr": self.attr,
            "above": self.above.native() if self.above else None,
        }


_WAYS = ("read", "above", "link", "entry", "is")
_FITS: Mapping[str, tuple[str, str]] = {
    "number": (r"-?\d{1,18}", "a whole number"),
    "boolean": ("true|false", "`true` or `false`"),
    "version": (r"\d+(\.\d+){0,3}\S{0,40}", "a version like `1.2.3`"),
}
"""By type: the form of a value, and its name."""


class Fact(ClassPart):
    """A fact of the device, and where it is from: one of `read`, `above`, `link`, `entry`, `is`."""

    read: Readable | None = None
    """A file of the entry."""
    above: FileBelow | None = None
    """A file of the ancestor that `find.above` means."""
    link: Readable | None = None
    """A link of the entry: the last part of where it leads."""
    entry: FileBelow | None = None
    """The name of an entry below, as a glob: `infiniband_verbs/uverbs*`."""
    constant: Annotated[Word | None, Field(alias="is")] = None
    """A text that holds for all of them."""
    key: Annotated[str, spelt(".+", "a word", "write what stands before `=` or `:`")] | None = None
    """The line of `read` that counts: the text behind this word and `=` or `:`."""
    map: dict[Word, Word] = {}
    """The value for each text that is read. Another text is a problem."""
    otherwise: Annotated[Word | None, Field(alias="else")] = None
    """The value for every text that `map` lacks."""
    type: FactKind = "text"
    """Its kind."""
    optional: Switch = False
    """Whether devices without it are normal: it is left out."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> "Fact":
        refuse(self._wrong())
        return self

    def _wrong(self) -> Iterator[WrongValueError]:
        given = self.ways
        if len(given) > 1:
            yield WrongValueError(f"it has both `{given[0]}` and `{given[1]}`", "remove one of them", at=(given[1],))
        elif not given:
            yield WrongValueError("where it comes from is not said", f"add one of {quoted(_WAYS)}")
        if self.key is not None and self.read is None:
            yield WrongValueError("`key` is a line of what `read` reads", "remove it, or add `read`", at=("key",))
        if self.otherwise is not None and not self.map:
            yield WrongValueError("`else` is for what `map` lacks", "add `map`, or remove it", at=("else",))
        if self.constant is not None and (self.map or self.optional):
            key = "map" if self.map else "optional"
            yield WrongValueError(f"`{key}` has no use beside `is`", "remove it", at=(key,))
        values = [(("map", text), value) for text, value in self.map.items()]
        texts: list[tuple[Location, str | None]] = [*values, (("else",), self.otherwise), (("is",), self.constant)]
        form, name = _FITS.get(self.type, ("(?s:.*)", ""))
        for place, text in texts:
            if text is not None and not re.fullmatch(form, text):
                cure = f"its `type` is `{self.type}`: change one"
                yield WrongValueError(f"{echo(text)} is not {name}", cure, at=place)

    @property
    def ways(self) -> list[str]:
        """The keys that say where it comes from; one in a valid fact."""
        values = (self.read, self.above, self.link, self.entry, self.constant)
        return [way for way, value in zip(_WAYS, values, strict=True) if value is not None]

    @property
    def needs(self) -> list[str]:
        """The names in its templates."""
        return places_in(self.read or self.link or "")

    def native(self, name: str) -> dict[str, Any]:
        """For the scan core."""
        return {
            "name": name,
            "read": self.read,
            "above": self.above,
            "link": self.link,
            "entry": self.entry,
            "is": self.constant,
            "key": self.key,
            "map": self.map,
            "otherwise": self.otherwise,
            "type": self.type,
            "optional": self.optional,
        }


class ClassNode(ClassPart):
    """A device node that a container gets, under the same path; a text is its path."""

    path: NodePath
    """Its path below /dev: `vfio/{group}`."""
    optional: Switch = False
    """Whether the device is served without it."""
    common: Switch = False
    """Whether several devices may have it, as they have `vfio/vfio`."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_path(cls, content: Any) -> Any:
        return content if isinstance(content, dict) else {"path": content}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Its schema, with that of a text."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def native(self) -> dict[str, Any]:
        """For the scan core."""
        return {"path": self.path, "optional": self.optional, "common": self.common}


class ClassHealth(ClassPart):
    """A state of the device that is bad: one of `equals`, `absent`, `beyond`."""

    read: Readable
    """A file of the entry."""
    equals: Word | None = None
    """The text that is bad."""
    absent: Switch = False
    """Whether it is bad that the file is missing."""
    beyond: Annotated[Count, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    """The number above which it is bad."""
    reason: Reason
    """What it is called: `widget-broken`."""

    @model_validator(mode="after")
    def _one_condition(self) -> "ClassHealth":
        given = [self.equals is not None, self.absent, self.beyond is not None].count(True)
        if given != 1:
            what, verb = ("it has several conditions", "keep") if given else ("when it is bad is not said", "add")
            raise WrongValueError(what, f"{verb} one of `equals`, `absent`, `beyond`")
        return self

    def native(self) -> dict[str, Any]:
        """For the scan core."""
        return {
            "read": self.read,
            "equals": self.equals,
            "absent": self.absent,
            "beyond": self.beyond,
            "reason": self.reason,
        }


class ClassPlugin(ClassPart):
    """What the kubelet is told, as by the device plugin that the class stands in for."""

    resource: Template | None = None
    """The resource name; default: `devherd.io/<class>`."""
    id: Template | None = None
    """The id of a device; default: `{name}`, of a shared one `{name}-{share}`."""
    shares: Annotated[Count, Field(ge=1, le=10_000)] = 1
    """How many containers may have a device at once."""
    env: dict[Variable, Template] = {}
    """Environment variables of the container; those of several devices are joined by commas."""


_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "dra": ("classes are not served by DRA yet", "remove it: `plugin` is for the device plugin"),
    **{
        key: ("unknown key", f"did you mean `{section}.{key}`?")
        for section, model in (("find", Find), ("plugin", ClassPlugin))
        for key in (field.alias or name for name, field in model.model_fields.items())
    },
}
"""Keys that a class has not, or has in a section."""


class ClassDefinition(ClassPart):
    """A kind of device: how it is found, what is known of it, what a container gets."""

    not_served: ClassVar[Mapping[str, tuple[str, str]]] = _ELSEWHERE

    title: str = ""
    """What it is, for people."""
    source: str = ""
    """The device plugin and version that it stands in for."""
    confirmed: Literal["plugin", "documents"] | None = None
    """Whether what is advertised was compared with what that plugin advertises, or only follows from documents."""
    find: Find
    function: Template | None = None
    """The address of its PCI function, where the entry itself has none: `{bus}`."""
    facts: dict[FactName, Fact] = {}
    """Its facts by name: what rules match, templates name, and `devherd explain` shows."""
    nodes: list[ClassNode] | None = None
    """The nodes that a container gets. Default: the one that the kernel names, `{node}`; with `vm` those of VFIO."""
    permissions: Permissions = "rw"
    """What the container may do with them: read, write, make."""
    group: str | None = None
    """A fact: entries with the same value are one device, like the nodes of a camera."""
    health: list[ClassHealth] = []
    """What makes it Unhealthy while it is seen. PCI errors, temperature, driver and nodes are watched anyway."""
    plugin: ClassPlugin = ClassPlugin()
    vm: Switch = False
    """Whether it is for virtual machines: containers get `PCI_RESOURCE_…` and VFIO's nodes, as from KubeVirt."""

    @model_validator(mode="after")
    def _fits_together(self) -> "ClassDefinition":
        refuse(self._wrong())
        return self

    def _wrong(self) -> Iterator[WrongValueError]:
        yield from self._wrong_facts()
        of_an_entry = [CLASS_FACT, *PARTS_OF_EVERY_ENTRY, *self.parts, *self.facts]
        for name, fact in self.facts.items():
            way = "read" if fact.read else "link"
            yield from _unknown(("facts", name, way), fact.needs, of_an_entry)
        yield from self._circles(of_an_entry)
        known = [*of_an_entry, *sorted(OF_PCI), *([IOMMU_GROUP] if self.vm else [])]
        for location, template in self._templates():
            special: dict[Location, list[str]] = {("function",): of_an_entry, ("plugin", "id"): [*known, SHARE]}
            names = special.get(location, known)
            yield from _unknown(location, places_in(template), names)
        if self.group is not None and self.group not in known:
            yield WrongValueError(f"`{self.group}` is no fact of the class", meant(self.group, known), at=("group",))
        yield from self._needs_what_may_be_absent()
        yield from self._wrong_plugin()
        if self.vm:
            yield from self._useless_beside_vm()
        elif self.find.bus == "pci" and self.nodes is None:
            cure = "add `nodes`, or `vm: true` for a virtual machine"
            yield WrongValueError("a PCI function has no node of its own", cure, at=("find",))

    def _useless_beside_vm(self) -> Iterator[WrongValueError]:
        """A virtual machine has a function for itself, and all of it."""
        written: list[Location] = [(key,) for key in ("nodes", "permissions") if key in self.model_fields_set]
        written += [("plugin", "shares")] if "shares" in self.plugin.model_fields_set else []
        for at in written:
            yield WrongValueError(f"`{at[-1]}` has no use beside `vm`", "remove it, or `vm`", at=at)

    def _wrong_facts(self) -> Iterator[WrongValueError]:
        kinds = {fact.name: fact.kind for fact in declared_facts()}
        for name, fact in self.facts.items():
            if (taken := _taken(name)) is not None:
                yield WrongValueError(taken, "rename it", at=("facts", name))
            elif name in self.parts:
                yield WrongValueError(f"`{name}` is a part of a name in `find`", "rename one", at=("facts", name))
            elif kinds.get(name, fact.type) != fact.type:
                what = f"`{name}` is a {kinds[name]} for every vendor"
                yield WrongValueError(what, f"add `type: {kinds[name]}`, or rename it", at=("facts", name))
            if fact.above is not None and self.find.above is None:
                what = "`above` is a file of the ancestor that `find.above` means, and there is none"
                yield WrongValueError(what, "add `find.above`", at=("facts", name, "above"))
        for part in self.parts:
            if (taken := _taken(part)) is not None:
                at = ("find", "name") if part in self.find.parts_of_the_name else ("find", "above", "name")
                yield WrongValueError(taken, "rename the part", at=at)

    def _circles(self, known: Collection[str]) -> Iterator[WrongValueError]:
        in_order = {name for name, _ in self._in_order()}
        left = {name: fact.needs for name, fact in self.facts.items() if name not in in_order}
        if left and all(need in known for needs in left.values() for need in needs):
            what = f"facts need each other: {quoted(left)}"
            yield WrongValueError(what, "read one of them without the others", at=("facts", next(iter(left))))

    def _in_order(self) -> Iterator[tuple[str, Fact]]:
        """The facts, each behind those that its template names; without those of a circle."""
        left, known = dict(self.facts), {CLASS_FACT, *PARTS_OF_EVERY_ENTRY, *self.parts}
        while ready := [name for name, fact in left.items() if known.issuperset(fact.needs)]:
            yield ready[0], left.pop(ready[0])
            known.add(ready[0])

    def _templates(self) -> Iterator[tuple[Location, str]]:
        if self.function is not None:
            yield ("function",), self.function
        for number, node in enumerate(self.nodes or ()):
            yield ("nodes", number, "path"), node.path
        for number, health in enumerate(self.health):
            yield ("health", number, "read"), health.read
        for key in ("resource", "id"):
            if (template := getattr(self.plugin, key)) is not None:
                yield ("plugin", key), template
        for variable, template in self.plugin.env.items():
            yield ("plugin", "env", variable), template

    def _needs_what_may_be_absent(self) -> Iterator[WrongValueError]:
        """Facts without which a device cannot be offered cannot be optional."""
        optional_nodes = {("nodes", number, "path") for number, node in enumerate(self.nodes or ()) if node.optional}
        needed = [
            (location, places_in(template))
            for location, template in self._templates()
            if location[0] in {"plugin", "nodes"} and location[1] != "env" and location not in optional_nodes
        ]
        for location, names in [*needed, (("group",), [self.group] if self.group else [])]:
            for name in self._read_by(names):
                if self.facts[name].optional:
                    what = f"`{name}` is optional, and a device without it could not be offered"
                    yield WrongValueError(what, f"remove `optional` of `facts.{name}`", at=location)

    def _read_by(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are facts of the class, and the facts that the paths of these name, each once."""
        found: list[str] = []
        left = list(names)
        while left:
            name = left.pop(0)
            if name in self.facts and name not in found:
                found.append(name)
                left += self.facts[name].needs
        return found

    def _wrong_plugin(self) -> Iterator[WrongValueError]:
        plugin = self.plugin
        if plugin.resource is not None and (refusal := resource_name_refusal(PLACE.sub("x", plugin.resource))):
            what, _, why = refusal.partition(": ")
            yield WrongValueError(what, why, at=("plugin", "resource"))
        if plugin.id is not None and plugin.shares > 1 and SHARE not in places_in(plugin.id):
            what = f"its {plugin.shares} shares would have one id"
            yield WrongValueError(what, "add `-{share}`", at=("plugin", "id"))
        if plugin.id == "":
            yield WrongValueError("an id cannot be empty", "write it like `{name}`", at=("plugin", "id"))

    @property
    def parts(self) -> list[str]:
        """The parts of names in `find`, which are facts."""
        return list(dict.fromkeys([*self.find.parts_of_the_name, *self.find.parts_above]))

    @property
    def fact_names(self) -> list[str]:
        """The facts that its devices can have besides those of a PCI function."""
        return [CLASS_FACT, *self.parts, *self.facts]

    def resource_of(self, name: str) -> str:
        """The template of the resource name of the class with this name."""
        return self.plugin.resource or f"devherd.io/{name}"

    def native(self, name: str) -> dict[str, Any]:
        """The class with this name for the scan core."""
        usual_id = "{name}-{share}" if self.plugin.shares > 1 else "{name}"
        nodes = [ClassNode(path="{node}")] if self.nodes is None and not self.vm else self.nodes or []
        return {
            "name": name,
            "find": self.find.native(),
            "function": self.function,
            "facts": [fact.native(one) for one, fact in self._in_order()],
            "nodes": [node.native() for node in nodes],
            "permissions": self.permissions,
            "group": self.group,
            "health": [health.native() for health in self.health],
            "resource": self.resource_of(name),
            "id": self.plugin.id or usual_id,
            "shares": self.plugin.shares,
            "env": self.plugin.env,
            "vm": self.vm,
        }


def _taken(name: str) -> str | None:
    """Why no fact of a class can have this name; None if it can."""
    if name in _MEANING:
        return f"`{name}` is {_MEANING[name]}"
    return f"every device has `{name}` from elsewhere" if name in _TAKEN or name in OF_PCI else None


def _unknown(location: Location, names: Iterable[str], known: Collection[str]) -> Iterator[WrongValueError]:
    for name in names:
        if name not in known:
            yield WrongValueError(f"`{name}` is no fact of the class", meant(name, known), at=location)
