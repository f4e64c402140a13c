"""What must be written so that the API server has a driver's slices of this node. Pure.

A slice is known by its name: its index, then the driver. What has another name, another pool, or an index for the
second time, is removed first. Then slices are updated in place, and those that are missing created.

A pool counts once all slices of its highest generation are there. So one slice that differs is updated within its
generation, and several, or a new one, make the next generation of all. A generation that is not complete is completed,
or a limit of writes would begin another each time: first what stands in it and differs, so that it counts last. Rules
of generations, and of `timeAdded`:
https://github.com/kubernetes/dynamic-resource-allocation/blob/v0.37.2/resourceslice/resourceslicecontroller.go
(`syncPool`). Other than there, a slice of a lower generation is updated, not made anew: it keeps its times.

The API server normalises: quantities are equal by value, empty maps and lists are not kept, and it adds when a taint
came. What else it makes of a slice is told by its answer: `stored`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.dra.objects import API_VERSION
from devherd.dra.values import number_in

Json = dict[str, Any]

_NAME = re.compile(r"([0-9a-f]{5})-(.*)", re.DOTALL)
_HIGHEST_GENERATION = 2**62
"""Above it somebody has written nonsense: the pool begins anew. The API takes 63 bits."""

Stored = Mapping[int, tuple[Any, Any]]
"""By index: the content of a slice that was sent, and what the server has made of it."""


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Writes in their order: deletions, updates, creations."""

    deletes: tuple[Json, ...] = ()
    """Slices as they are there."""
    updates: tuple[tuple[int, Json], ...] = ()
    """Index and whole object, of the version that was seen."""
    creates: tuple[tuple[int, Json], ...] = ()
    """Index and object, with `generateName`."""

    @property
    def writes(self) -> int:
        """How many."""
        return len(self.deletes) + len(self.updates) + len(self.creates)


def plan_slices(wanted: Sequence[Json], there: Sequence[Json], stored: Stored) -> SlicePlan:
    """The plan for one driver: `wanted` are its slices by their index, `there` all that the node has of it."""
    pool = wanted[0]["spec"]["pool"]["name"] if wanted else None
    alive = [each for each in there if not each["metadata"].get("deletionTimestamp")]
    highest = max((_generation(each) for each in there if _pool(each).get("name") == pool), default=0)
    matched: dict[int, Json] = {}
    if highest <= _HIGHEST_GENERATION:
        for each in sorted(alive, key=lambda each: (-_generation(each), each["metadata"]["name"])):
            index = index_of(each)
            if index is not None and index < len(wanted) and _pool(each).get("name") == pool:
                matched.setdefault(index, each)
    else:
        highest = 0
    kept = {each["metadata"]["name"] for each in matched.values()}
    deletes = tuple(each for each in alive if each["metadata"]["name"] not in kept)
    differing = {index for index, each in matched.items() if _differs(each, wanted, index, stored)}
    of_before = {index for index, each in matched.items() if _generation(each) != highest}
    missing = [index for index in range(len(wanted)) if index not in matched]
    standing = [each for each in there if each not in deletes and _pool(each).get("name") == pool]
    is_incomplete = _is_incomplete([each for each in standing if _generation(each) == highest], len(wanted))
    if is_incomplete or (not missing and len(differing | of_before) <= 1):
        generation = highest
        owned = {index for index, each in matched.items() if _owners(each) != _owners(wanted[index])}
        changed = [*sorted((differing | owned) - of_before), *sorted(of_before)]
    else:
        generation = highest + 1
        changed = sorted(matched)
    return SlicePlan(
        deletes,
        tuple((index, _updated(matched[index], wanted[index], generation)) for index in changed),
        tuple((index, _of_generation(wanted[index], generation)) for index in missing),
    )


def _is_incomplete(generation: Sequence[Json], count: int) -> bool:
    """Whether these slices wait for others of their generation, as a pool of `count`: no scheduler uses them yet."""
    return 0 < len(generation) < count and all(_pool(each).get("resourceSliceCount") == count for each in generation)


def index_of(slice_: Json) -> int | None:
    """The place of a slice in its driver's pool by its name; None if it has no such name."""
    named = _NAME.fullmatch(slice_["metadata"]["name"])
    driver = slice_["spec"].get("driver")
    return int(named[1], 16) if named and named[2].startswith(f"{driver}-") else None


def content_of(slice_: Json) -> Any:
    """What a slice says, but for its generation, in a form in which equal contents are equal."""
    spec = slice_["spec"]
    pool = {key: value for key, value in _pool(slice_).items() if key != "generation"}
    return normal({**spec, "pool": pool})


def dropped(sent: Any, answer: Any) -> set[str]:
    """The names of fields that were sent and are not in the answer, in any depth; both as they are."""
    if isinstance(sent, dict):
        there = answer if isinstance(answer, dict) else {}
        lacking = {key for key, value in sent.items() if key not in there and normal(value) is not None}
        return lacking.union(*(dropped(value, there[key]) for key, value in sent.items() if key in there))
    if isinstance(sent, list) and isinstance(answer, list):
        return set().union(*(dropped(*pair) for pair in zip(sent, answer, strict=False)))
    return set()


def _differs(there: Json, wanted: Sequence[Json], index: int, stored: Stored) -> bool:
    content, there_content = content_of(wanted[index]), content_of(there)
    return content != there_content and stored.get(index) != (content, there_content)


def normal(part: Any) -> Any:
    """The part without what the server drops or adds; None if nothing is left."""
    if isinstance(part, dict):
        made = {key: value for key, value in _normal_items(part) if value is not None}
        return made or None
    if isinstance(part, list):
        return [normal(each) for each in part] or None
    return part


def _normal_items(part: Json) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        if key in ("capacity", "counters"):
            yield key, normal(_by_value(value))
        elif key != "timeAdded":
            yield key, normal(value)


def _by_value(part: Any) -> Any:
    """With numbers for quantities: all texts below a capacity are."""
    if isinstance(part, dict):
        return {key: _by_value(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_by_value(each) for each in part]
    number = number_in(part) if isinstance(part, str) else None
    return part if number is None else number


def _pool(slice_: Json) -> Json:
    return slice_["spec"].get("pool") or {}


def _generation(slice_: Json) -> int:
    return int(_pool(slice_).get("generation") or 0)


def _owners(slice_: Json) -> Any:
    """Of a slice; what the server adds to an owner does not count."""
    owners = slice_["metadata"].get("ownerReferences") or ()
    return [(owner.get("kind"), owner.get("name"), owner.get("uid"), owner.get("controller")) for owner in owners]


def _of_generation(slice_: Json, generation: int) -> Json:
    spec = slice_["spec"]
    return {**slice_, "spec": {**spec, "pool": {**spec["pool"], "generation": generation}}}


def _updated(there: Json, wanted: Json, generation: int) -> Json:
    """The object that replaces what is there: its own metadata, but with the wanted owner."""
    metadata = {key: value for key, value in there["metadata"].items() if key != "managedFields"}
    metadata["ownerReferences"] = wanted["metadata"].get("ownerReferences") or []
    made = _of_generation(wanted, generation)
    since = {each.get("name"): each.get("taints") or () for each in there["spec"].get("devices") or ()}
    devices = [_with_times(device, since.get(device["name"], ())) for device in made["spec"].get("devices", ())]
    spec = {**made["spec"], **({"devices": devices} if devices else {})}
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def _with_times(device: Json, before: Sequence[Json]) -> Json:
    """The device with when its taints came, as far as it has had them before."""
    if not device.get("taints"):
        return device
    times = {_taint(each): each["timeAdded"] for each in before if each.get("timeAdded")}
    taints = [
        {**each, "timeAdded": times[_taint(each)]} if _taint(each) in times else each for each in device["taints"]
    ]
    return {**device, "taints": taints}


def _taint(taint: Json) -> tuple[Any, ...]:
    return taint.get("key"), taint.get("value"), taint.get("effect")
