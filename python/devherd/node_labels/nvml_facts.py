"""What NVML has said of each GPU, read from the answer file: `Facts` in rust/src/nvml/facts.rs.

Another program may have written the file, or another version: an answer of another shape is none, as for the scan.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NOT_ANSWERED = "NVML alone knows it, and has not been asked or has not answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlMig:
    """A MIG device; 0 is unknown."""

    uuid: str = ""
    gpu_slices: int = 0
    compute_slices: int = 0
    multiprocessors: int = 0
    engines: Mapping[str, int] = field(default_factory=dict)
    """How many it shares with others of its GPU instance, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """A GPU; what is empty or 0 is unknown."""

    pci_address: str = ""
    model: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    """`9.0`."""
    mig_mode: bool | None = None
    """None: it has no such mode."""
    fabric_clique: str = ""
    mig_devices: tuple[NvmlMig, ...] = ()


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """Of all GPUs, in NVML's order."""

    gpus: tuple[NvmlGpu, ...] = ()
    why_none: str = NOT_ANSWERED
    """Why there are none, where that is so."""


def facts_in(answer: bytes) -> NvmlFacts:
    """What an answer file says; `answer` is its content, empty where there is none."""
    if not answer:
        return NvmlFacts()
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        return NvmlFacts(why_none="NVML alone knows it, and its answer is no JSON")
    try:
        facts = _Place(said, "answer").optional("facts")
        return NvmlFacts() if facts is None else NvmlFacts(tuple(map(_gpu, facts.items("gpus"))))
    except _ShapeError as error:
        return NvmlFacts(why_none=f"NVML alone knows it, and its answer has another shape: {error}")


def _gpu(gpu: "_Place") -> NvmlGpu:
    capability = gpu.items("compute_capability")
    if capability and len(capability) != 2:
        raise _ShapeError(f"{gpu.name}.compute_capability is not of two numbers")
    return NvmlGpu(
        pci_address=gpu.text("pci_address"),
        model=gpu.text("model"),
        memory_bytes=gpu.number("memory_bytes"),
        compute_capability=".".join(str(part.as_number()) for part in capability),
        mig_mode=gpu.truth("mig_mode"),
        fabric_clique=gpu.text("fabric_clique"),
        mig_devices=tuple(map(_mig, gpu.items("mig_devices"))),
    )


def _mig(mig: "_Place") -> NvmlMig:
    return NvmlMig(
        uuid=mig.text("uuid"),
        gpu_slices=mig.number("gpu_slices"),
        compute_slices=mig.number("compute_slices"),
        multiprocessors=mig.number("multiprocessors"),
        engines=mig.numbers("engines"),
    )


class _ShapeError(Exception):
    """Where something else is than there should be, and what should be."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of an answer, and the way to it. What is absent or null is empty; what is of another kind is refused."""

    value: Any
    name: str

    def optional(self, key: str) -> "_Place | None":
        if not isinstance(self.value, dict):
            raise _ShapeError(f"{self.name} is no object")
        found = self.value.get(key)
        return None if found is None else _Place(found, f"{self.name}.{key}")

    def text(self, key: str) -> str:
        place = self.optional(key)
        return "" if place is None else place.of_kind(str, "text")

    def truth(self, key: str) -> bool | None:
        place = self.optional(key)
        return None if place is None else place.of_kind(bool, "true or false")

    def number(self, key: str) -> int:
        place = self.optional(key)
        return 0 if place is None else place.as_number()

    def numbers(self, key: str) -> dict[str, int]:
        place = self.optional(key)
        if place is None:
            return {}
        return {each: place.number(each) for each in place.of_kind(dict, "an object")}

    def items(self, key: str) -> "list[_Place]":
        place = self.optional(key)
        if place is None:
            return []
        return [_Place(each, f"{place.name}.{number}") for number, each in enumerate(place.of_kind(list, "a list"))]

    def as_number(self) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            raise _ShapeError(f"{self.name} is no number of things")
        return self.value

    def of_kind(self, kind: type, called: str) -> Any:
        if not isinstance(self.value, kind):
            raise _ShapeError(f"{self.name} is not {called}")
        return self.value
