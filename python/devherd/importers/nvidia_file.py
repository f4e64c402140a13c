"""Sections of NVIDIA's file that name and share devices, as devherd's rules."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devherd.config.checks import problems_of
from devherd.config.errors import key_path
from devherd.errors import UsageError
from devherd.importers.imported import Imported, not_keys

_IGNORED = "the plugin ignores it; --with-ignored gives it its effect"
_PREFIX = "nvidia.com/"
_GPU = "nvidia.com/gpu"
_Rule = dict[str, Any]
_DAEMON = (
    "the MPS control daemon goes with the plugin's DaemonSets, and no share is Healthy without it: see"
    " docs/switch.md, NVIDIA GPUs"
)


class FilePart(BaseModel):
    """A section or a part of one. Unknown keys are kept for the report; the plugin ignores them."""

    model_config = ConfigDict(extra="allow")


class NamedPattern(FilePart):
    """A pattern of products or MIG profiles, and their resource name."""

    pattern: str
    name: str


class Resources(FilePart):
    """The section `resources`."""

    gpus: list[NamedPattern] = []
    mig: list[NamedPattern] = []


class Shared(FilePart):
    """One shared resource. `devices`: all, the first N, or a list of indices (`0`, `0:1` for MIG) and UUIDs."""

    name: str
    rename: str | None = None
    devices: Literal["all"] | int | list[int | str] = "all"
    replicas: int = Field(ge=2)


class Strategy(FilePart):
    """The resources that are shared in one way."""

    rename_by_default: bool = Field(False, alias="renameByDefault")
    fail_requests_greater_than_one: bool | None = Field(None, alias="failRequestsGreaterThanOne")
    resources: list[Shared] = []


class SharingSection(FilePart):
    """The section `sharing`."""

    time_slicing: Strategy | None = Field(None, alias="timeSlicing")
    mps: Strategy | None = None


Section = TypeVar("Section", bound=FilePart)


def read(kind: type[Section], name: str, content: Any) -> Section:
    """The section of this kind, with defaults for absent keys. Raises UsageError with the key that is wrong."""
    if not isinstance(content, Mapping):
        raise not_keys(name, content)
    try:
        return kind.model_validate(dict(content))
    except ValidationError as error:
        first = next(problems_of(error, kind))
        raise UsageError(f"bad value of {key_path((name, *first.location))}", first.what, first.cure) from error


def unknown(part: FilePart, name: str) -> Iterator[str]:
    """The full names of the keys that the plugin does not know."""
    for key in part.model_extra or {}:
        yield f"{name}.{key}"
    for key, field in type(part).model_fields.items():
        value = getattr(part, key)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, FilePart):
                yield from unknown(each, f"{name}.{field.alias or key}")


def without_ignored(
    resources: Resources, sharing: SharingSection, imported: Imported
) -> tuple[Resources, SharingSection]:
    """Both sections without what the plugin ignores (its `DisableResourceNamingInConfig`); a note for each loss."""
    for key in ("gpus", "mig"):
        if getattr(resources, key):
            imported.note(f"resources.{key} is left out: {_IGNORED}")
    strategies = {
        "time_slicing": _without_names(sharing.time_slicing, "timeSlicing", imported),
        "mps": _without_names(sharing.mps, "mps", imported),
    }
    return Resources(), sharing.model_copy(update=strategies)


def _without_names(strategy: Strategy | None, name: str, imported: Imported) -> Strategy | None:
    if strategy is None:
        return None
    for key, is_set in (
        ("rename", any(each.rename for each in strategy.resources)),
        ("devices", any(each.devices != "all" for each in strategy.resources)),
    ):
        if is_set:
            imported.note(f"sharing.{name}.resources.{key} is left out: {_IGNORED}")
    plain = [each.model_copy(update={"rename": None, "devices": "all"}) for each in strategy.resources]
    return strategy.model_copy(update={"resources": plain})


def rules(resources: Resources, sharing: SharingSection, imported: Imported) -> list[_Rule]:
    """The rules in the order of evaluation: shared devices before the rest of their resource."""
    naming = list(_naming(resources))
    strategy, section = _strategy(sharing, imported)
    made = []
    for shared in section.resources:
        of_this = list(_shared(shared, section, strategy, naming, imported))
        if not of_this:
            imported.note_loss(f"the sharing of {_full(shared.name)} is left out: no device comes to that name")
        made += of_this
    return made + naming


def _naming(resources: Resources) -> Iterator[_Rule]:
    """Rules that name devices by product or MIG profile; GPUs that only `*` matches keep their default name."""
    for entries, fact in ((resources.gpus, "model"), (resources.mig, "mig_profile")):
        for entry in entries:
            if (fact, entry.pattern, _full(entry.name)) == ("model", "*", _GPU):
                break
            match: _Rule = {"vendor": "nvidia", fact: entry.pattern}
            if fact == "model":  # the plugin's patterns of products see whole GPUs only
                match["exclude"] = [{"mig_profile": "*"}]
            yield {"match": match, "name": _full(entry.name)}


def _strategy(sharing: SharingSection, imported: Imported) -> tuple[str, Strategy]:
    """The name and section of the strategy in use: MPS if it shares any resource, as in the plugin."""
    if sharing.mps and sharing.mps.resources:
        if sharing.time_slicing and sharing.time_slicing.resources:
            imported.note("sharing.timeSlicing is left out: MPS sharing wins over it")
        imported.note(_DAEMON)
        return "mps", sharing.mps
    return "time_slicing", sharing.time_slicing or Strategy.model_validate({})


def _shared(
    shared: Shared, section: Strategy, strategy: str, naming: list[_Rule], imported: Imported
) -> Iterator[_Rule]:
    name = _full(shared.name)
    sharing: dict[str, Any] = {"replicas": shared.replicas}
    rename = shared.rename or (f"{name}.shared" if section.rename_by_default else None)
    if rename:
        sharing["rename"] = _full(rename)
    fails = section.fail_requests_greater_than_one
    if fails is not None and fails != (strategy == "mps"):
        sharing["fail_requests_greater_than_one"] = fails
    if strategy == "mps":
        sharing["strategy"] = "mps"
    for devices in _devices(shared.devices, imported):
        for rule in _coming_to(name, naming):
            yield {**rule, "match": rule["match"] | devices, "sharing": dict(sharing)}


def _coming_to(name: str, naming: list[_Rule]) -> Iterator[_Rule]:
    """Rules for the devices of a resource name: those of each naming rule, and those with this default name."""
    yield from (rule for rule in naming if rule["name"] == name)
    named = [
        {fact: pattern for fact, pattern in rule["match"].items() if fact in {"model", "mig_profile"}}
        for rule in naming
    ]
    if name == _GPU or name.startswith(f"{_PREFIX}mig-"):
        match: dict[str, Any] = {"vendor": "nvidia", "resource_name": name}
        yield {"match": match | ({"exclude": named} if named else {})}


def _devices(devices: str | int | list[int | str], imported: Imported) -> Iterator[dict[str, Any]]:
    """Further facts to match: a set for each kind of name in the list."""
    if isinstance(devices, str):
        yield {}
    elif isinstance(devices, int):
        imported.note(f"the first {devices} devices are those of the lowest index")
        yield {"index": [str(index) for index in range(devices)]}
    else:
        names = [str(device) for device in devices]
        by_fact = {
            "id": [name for name in names if name.startswith(("GPU-", "MIG-"))],
            "mig_index": [name for name in names if ":" in name and not name.startswith("MIG-")],
            "index": [name for name in names if name.isdecimal()],
        }
        yield from ({fact: listed} for fact, listed in by_fact.items() if listed)


def _full(name: str) -> str:
    return name if "/" in name else f"{_PREFIX}{name}"
