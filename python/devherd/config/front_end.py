"""Settings that have no effect with the chosen front end, and what it cannot work without. Pure."""

from collections.abc import Iterator
from typing import Any

from devherd.config.errors import Location, Problem
from devherd.config.model import Config, ResourceRule
from devherd.settings import DEFAULTS

API_SERVER_CURE = "give `kubeconfig`, or run it in a pod with a service account's token"

_SCHEDULED = "the scheduler chooses the devices of a claim"
_BY_SPECS = "containers get devices by CDI specs"
_OF_THE_PLUGIN: dict[Location, str] = {
    ("registration",): "the kubelet finds DRA drivers in `plugins_registry`",
    ("kubelet_check",): "the kubelet has no list of devices",
    ("ledger", "enabled"): "the devices of claims are not compared with those that processes have open",
    ("vendors", "nvidia", "device_list_strategy"): _BY_SPECS,
    ("vendors", "nvidia", "pass_device_specs"): _BY_SPECS,
    ("vendors", "nvidia", "cdi_annotation_prefix"): _BY_SPECS,
    ("vendors", "nvidia", "shared_devices_allocation_policy"): _SCHEDULED,
    ("vendors", "nvidia", "passthrough"): "virtual machines are given devices by the device plugin alone",
    ("vendors", "intel_gpu", "allocation_policy"): _SCHEDULED,
    ("vendors", "intel_gpu", "monitoring"): "DRA publishes cards, and nothing that has the nodes of all of them",
    ("vendors", "rdma", "pools"): "each RDMA device is published by itself",
    ("vendors", "rdma", "device_info_dir"): "the files are about resources of the device plugin",
}
"""Keys that only the device plugin uses, with the reason."""


def without_effect(config: Config) -> Iterator[Problem]:
    """A warning for each given value that has no effect with `front_end` as it is."""
    if config.front_end != "dra":
        if config.health.taint != type(config.health).model_fields["taint"].default:
            what = "no effect: only devices that are published for DRA have taints"
            yield Problem(("health", "taint"), what, "remove it, or set `front_end: dra`")
        return
    for location, why in _OF_THE_PLUGIN.items():
        if _is_given(config, location):
            yield _idle(location, why)
    for number, rule in enumerate(config.resources):
        if rule.advertise:
            for location, why in _of_rule(rule):
                yield _idle(("resources", number, *location), why)


def _of_rule(rule: ResourceRule) -> Iterator[tuple[Location, str]]:
    shared = rule.sharing
    if rule.preferred is not None:
        yield ("preferred",), _SCHEDULED
    if rule.pre_start.is_on:
        yield ("pre_start",), "nothing is asked before a container with a claim starts"
    if shared.strategy == "mps" and shared.replicas > 1:
        yield ("sharing", "strategy"), "MPS is served by the device plugin alone, and the devices are not shared"
    elif shared.fail_requests_greater_than_one and shared.replicas == 1:
        yield ("sharing", "fail_requests_greater_than_one"), "a claim says how many devices it wants"


def _idle(location: Location, why: str) -> Problem:
    return Problem(location, f"no effect with `front_end: dra`: {why}", "remove it")


def _is_given(config: Config, location: Location) -> bool:
    """Whether the value is another than the default. Common options have theirs in `settings`."""
    *above, key = map(str, location)
    section: Any = config
    for part in above:
        section = getattr(section, part)
    default = getattr(DEFAULTS, key) if not above else type(section).model_fields[key].default
    return bool(getattr(section, key) != default)
