"""The devices that a word names: by id or its beginning, PCI address, slot, index, serial, UUID or path."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from devherd import spool
from devherd.cli.instance import resource_named, unknown
from devherd.errors import UsageError
from devherd.inventory import DeviceKey, key_of
from devherd.proto import devices_pb2, health_pb2, spool_pb2
from devherd.spool import ids_of

if TYPE_CHECKING:
    from devherd.instance.read import InstanceState
    from devherd.inventory import Allocations
    from devherd.settings import Settings

MOST_NAMED = 10
"""Limit on the candidates in an error message."""
_ADDRESS = re.compile(
    r"(?:pci:)?(?:0*(?P<domain>[0-9a-f]{1,8}):)?(?P<rest>[0-9a-f]{2}:[0-9a-f]{0,2}(?:\.[0-7]?)?)", re.IGNORECASE
)
"""A PCI address, also as NVIDIA's driver (`PCI:0000:83:00`) and tools (`00000000:83:00.0`) print it."""
_BY = ("pci_address", "slot", "serial", "uuid", "index")
"""The facts whose text a word may be; a card of several functions has several addresses."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A device, the resource in which it is offered, and the id by which somebody has named it."""

    key: DeviceKey
    device_id: str
    offer: spool_pb2.Offer | None = None
    """None if it is not offered."""
    device: spool_pb2.Device | None = None
    left_out: str = ""
    """Why it is not offered, if its vendor says so."""
    lost: health_pb2.LostDevice | None = None
    """What is known of it, if it is lost and no longer offered."""
    facts: "dict[str, devices_pb2.Fact]" = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """Its own id and its ids in the kubelet's list."""
        if self.device is None:
            return [self.key[2]]
        return list(dict.fromkeys((self.device.id, *ids_of(self.device.id, self.device.replicas, self.device.shares))))

    @property
    def listed_ids(self) -> list[str]:
        """Its ids in the kubelet's list."""
        return list(ids_of(self.device.id, self.device.replicas, self.device.shares)) if self.device else []

    @property
    def resource_name(self) -> str:
        """The resource in which it is offered, or was before it was lost; empty without one."""
        return self.offer.name if self.offer else self.lost.resource_name if self.lost else ""

    @property
    def name(self) -> str:
        """Its resource and the id, as every command takes them."""
        return f"{self.resource_name} {self.device_id}".lstrip()

    def fact(self, name: str) -> str:
        """The text of a fact; empty if it is unknown."""
        if name in self.facts:
            return fact_text(self.facts[name])
        return self.device.attributes.get(name, "") if self.device else ""


def fact_text(fact: devices_pb2.Fact) -> str:
    """The value of a fact."""
    return str(getattr(fact, fact.WhichOneof("value") or "text"))


@dataclass(frozen=True)
class Known:
    """The devices of an instance, their holders and verdicts."""

    herd: "InstanceState"
    allocations: "Allocations | None"
    subjects: Sequence[Subject]

    def verdict(self, key: DeviceKey) -> health_pb2.Verdict:
        """The verdict on a device; empty without one."""
        for verdict in self.herd.verdicts:
            if (verdict.vendor, verdict.card, verdict.device) == key:
                return verdict
        return health_pb2.Verdict()

    def subject(self, resource_name: str, listed_id: str) -> Subject | None:
        """The device that the kubelet knows by this id."""
        return next(
            (
                each
                for each in self.subjects
                if each.offer and each.offer.name == resource_name and listed_id in each.ids
            ),
            None,
        )


def known_devices(settings: "Settings", herd: "InstanceState", allocations: "Allocations | None") -> Known:
    """The devices of the run directory, those that are not offered last. Raises OSError."""
    inventory = spool.read_or_empty(settings.devices_file, devices_pb2.Inventory)
    scanned = {(one.device.vendor, one.device.card, one.device.id): one for one in inventory.devices}
    subjects = []
    for offer in herd.resources:
        for device in offer.devices:
            known = scanned.get(key_of(device))
            facts = dict(known.device.attributes) if known else {}
            subjects.append(Subject(key_of(device), device.id, offer, device, facts=facts))
    offered = {subject.key for subject in subjects}
    for key, known in scanned.items():
        if key not in offered:
            why = next(iter(known.left_out.values()), "")
            subjects.append(Subject(key, known.device.id, left_out=why, facts=dict(known.device.attributes)))
    return Known(herd, allocations, subjects)


def lost_subjects(devices: Iterable[health_pb2.LostDevice]) -> list[Subject]:
    """Lost devices, named as others are."""
    made = []
    for lost in devices:
        texts = {name: getattr(lost, name) for name in ("pci_address", "slot", "serial", "uuid")}
        facts = {name: devices_pb2.Fact(text=text) for name, text in texts.items() if text}
        made.append(Subject((lost.vendor, lost.card, lost.device), lost.device, lost=lost, facts=facts))
    return made


ONE_DEVICE = "[RESOURCE] DEVICE"
NAMES = "a device: its id or the beginning of it, PCI address, slot, index, serial number, UUID or path"
"""What every command takes for a device, for its help."""


def split(words: Sequence[str]) -> tuple[str, str]:
    """Resource, empty if none is given, and name of `[RESOURCE] DEVICE`. Raises UsageError for more words."""
    if len(words) > 2:
        raise UsageError(
            f"unknown argument `{words[2]}`", "a device is named by one word, or by RESOURCE DEVICE", "leave it out"
        )
    return (words[0], words[1]) if len(words) == 2 else ("", words[0])


def offered_device(known: Known, words: Sequence[str]) -> Subject | None:
    """The offered device that `[RESOURCE] DEVICE` names. Raises UsageError, with all of them, for several."""
    resource_name, word = split(words)
    subjects = (each for each in known.subjects if each.offer)
    return only(devices_named((each for each in subjects if resource_name in ("", each.resource_name)), word), word)


def one_device(known: Known, words: Sequence[str]) -> Subject:
    """The offered device that `[RESOURCE] DEVICE` names.

    Raises UsageError for none, with the nearest name, and for several, with all of them.
    """
    found = offered_device(known, words)
    if found is None:
        raise not_offered(known, words)
    return found


def not_offered(known: Known, words: Sequence[str]) -> UsageError:
    """Why no device of a resource has this name."""
    resource_name, word = split(words)
    if resource_name:
        offer = resource_named(known.herd, resource_name)
        listed = [each for subject in known.subjects if subject.offer is offer for each in subject.listed_ids]
        return unknown(f"device of {resource_name}", word, listed)
    if any(offer.name == word for offer in known.herd.resources):
        return UsageError(f"`{word}` is a resource", "a device of it is wanted", "see `devherd status --devices`")
    if hidden := devices_named((each for each in known.subjects if not each.offer), word):
        return UsageError(f"{hidden[0].device_id} is not offered", hidden[0].left_out or NO_RULE, "offer it first")
    if lost := devices_named(lost_subjects(known.herd.lost), word):
        return UsageError(f"{lost[0].name} is lost", "no scan finds it", f"see `devherd explain {lost[0].device_id}`")
    return unknown_word(known, word)


NO_RULE = "no rule of the configuration offers it"


def only(found: Sequence[Subject], word: str) -> Subject | None:
    """The device; None without one. Raises UsageError, which lists the candidates, for several."""
    if len({subject.key for subject in found}) > 1:
        raise ambiguous(found, f"`{word}` names {len(found)} devices")
    return found[0] if found else None


def ambiguous(found: Sequence[Subject], what: str) -> UsageError:
    """The error for a word that names several devices."""
    shown = ", ".join(subject.name for subject in found[:MOST_NAMED])
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return UsageError(what, f"choose from {shown}{more}", "give the id of one")


def devices_named(subjects: Iterable[Subject], word: str) -> list[Subject]:
    """The devices that a word names: all with this id, address, slot, index, serial, UUID or path, else by a beginning.

    Raises UsageError, which lists the candidates, if it is the beginning of several.
    """
    subjects = list(subjects)
    if by_id := [_named(subject, word) for subject in subjects if word in (subject.key[2], *subject.ids)]:
        return by_id
    address = normal_address(word)
    if found := [
        subject
        for subject in subjects
        if any((address if fact == "pci_address" else word) in _words(subject, fact) for fact in _BY)
    ]:
        return found
    if found := [subject for subject in subjects if subject.key[1] == word or word in _paths(subject)]:
        return found
    return _by_beginning(subjects, word, address)


def _by_beginning(subjects: Iterable[Subject], word: str, address: str) -> list[Subject]:
    found = [
        subject
        for subject in subjects
        if any(one.startswith(word) for one in (*subject.ids, *_words(subject, "uuid")))
        or any(one.startswith(address) for one in _words(subject, "pci_address"))
    ]
    if len({subject.key[:2] for subject in found}) > 1:
        raise ambiguous(found, f"`{word}` is the beginning of {len(found)} devices")
    return found


def _named(subject: Subject, word: str) -> Subject:
    """The device; named by the replica's id if the word is one."""
    return replace(subject, device_id=word)


def _words(subject: Subject, fact: str) -> Iterator[str]:
    for text in filter(None, subject.fact(fact).split(",")):
        yield normal_address(text) if fact == "pci_address" else text


def _paths(subject: Subject) -> Iterator[str]:
    if subject.device is not None:
        yield from (node.host_path for node in subject.device.edits.nodes)


def normal_address(word: str) -> str:
    """A PCI address, or its beginning, with domain and in small letters; any other word as it is."""
    found = _ADDRESS.fullmatch(word)
    return f"{found['domain'] or '0':0>4}:{found['rest']}".lower() if found else word


def words_of(known: Known) -> Iterator[str]:
    """Every word that names a device or a resource, for completion."""
    yield from (offer.name for offer in known.herd.resources)
    for subject in known.subjects:
        yield subject.key[2]
        for fact in ("pci_address", "slot", "serial"):
            yield from filter(None, subject.fact(fact).split(","))
    for lost in known.herd.lost:
        yield from filter(None, (lost.device, lost.pci_address, lost.slot, lost.serial))
    if known.herd.scan is not None:
        yield from (one.device or one.path for one in (*known.herd.scan.problems, *known.herd.scan.notices))


def unknown_word(known: Known, word: str) -> UsageError:
    """The error for a word that names nothing."""
    words = list(dict.fromkeys(words_of(known)))
    close = difflib.get_close_matches(word, words, n=1)
    cure = f"did you mean `{close[0]}`?" if close else "see `devherd status`; a pod is NAMESPACE/NAME"
    kinds = "resource, device, PCI address, slot, index, serial number or path"
    return UsageError(f"`{word}` not found", f"no {kinds} of this node has that name", cure)
