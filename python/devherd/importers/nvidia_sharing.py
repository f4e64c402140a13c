"""The `resources` and `sharing` sections of NVIDIA's file as devherd's rules.

In the file a name is given first and shared afterwards, under that name; a rule does both at once. So each shared
resource becomes one rule for every way in which devices come to its name.
"""

from collections.abc import Iterator
from typing import Any

from devherd.importers.imported import Imported
from devherd.importers.nvidia_file import Resources, Shared, Sharing, Strategy

_PREFIX = "nvidia.com/"
_GPU = "nvidia.com/gpu"
_Rule = dict[str, Any]
_DAEMON = (
    "the MPS control daemon goes with the plugin's DaemonSets, and no share is Healthy without it: see"
    " deploy/vendors.md, Switching from NVIDIA's plugin"
)


def rules(resources: Resources, sharing: Sharing, imported: Imported) -> list[_Rule]:
    """The rules in the order in which they must be tried: shared devices before the rest of their resource."""
    naming = list(_naming(resources))
    strategy, section = _strategy(sharing, imported)
    made = []
    for shared in section.resources:
        of_this = list(_shared(shared, section, strategy, naming, imported))
        if not of_this:
            imported.note(f"the sharing of {_full(shared.name)} is left out: no device comes to that name")
        made += of_this
    return made + naming


def _naming(resources: Resources) -> Iterator[_Rule]:
    """By product or profile, the first pattern that fits; a GPU that comes to a `*` keeps its own name."""
    for entries, fact in ((resources.gpus, "model"), (resources.mig, "mig_profile")):
        for entry in entries:
            if (fact, entry.pattern, _full(entry.name)) == ("model", "*", _GPU):
                break
            match: _Rule = {"vendor": "nvidia", fact: entry.pattern}
            if fact == "model":  # the plugin's patterns of products see whole GPUs only
                match["exclude"] = [{"mig_profile": "*"}]
            yield {"match": match, "name": _full(entry.name)}


def _strategy(sharing: Sharing, imported: Imported) -> tuple[str, Strategy]:
    """MPS alone where it shares anything, as in the plugin."""
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
    """How devices come to a name: by a rule, and by being called so and meeting no rule."""
    yield from (rule for rule in naming if rule["name"] == name)
    named = [
        {fact: pattern for fact, pattern in rule["match"].items() if fact in {"model", "mig_profile"}}
        for rule in naming
    ]
    if name == _GPU or name.startswith(f"{_PREFIX}mig-"):
        match: dict[str, Any] = {"vendor": "nvidia", "resource_name": name}
        yield {"match": match | ({"exclude": named} if named else {})}


def _devices(devices: str | int | list[int | str], imported: Imported) -> Iterator[dict[str, Any]]:
    """What is to be matched besides, a set of facts for each kind of name that the list uses."""
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
