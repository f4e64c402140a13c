"""Whether pods hold devices that the node's other front end gave them: a device that both give would be given twice.

What that front end may have given is in the files of earlier instances: the resources that children served, the DRA
drivers that were registered or have prepared claims. The kubelet's PodResources then tells which pods there are.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import grpc.aio

from devherd import spool
from devherd.config.sections import FrontEnd
from devherd.errors import DevherdError
from devherd.kubelet.pod_resources import claimed, list_pods, parse
from devherd.proto import spool_pb2
from devherd.proto.podresources_v1_pb2 import ListPodResourcesResponse
from devherd.settings import Settings
from devherd.text import amount

MOST_NAMED = 5
"""Limit on the pods that a message names."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OtherFrontEnd:
    """What pods may hold beside those of `front_end`, which is to serve this node."""

    front_end: FrontEnd
    names: frozenset[str]
    """With `dra` the names of resources, else those of DRA drivers."""

    @property
    def other(self) -> FrontEnd:
        """The front end that may have given them."""
        return "device_plugin" if self.front_end == "dra" else "dra"

    def held(self, pods: ListPodResourcesResponse) -> dict[str, list[str]]:
        """The resources or drivers whose devices each pod holds, by the pod's namespace and name, both sorted."""
        held: dict[str, set[str]] = {}
        for name, pod in _held_by_resources(pods) if self.front_end == "dra" else _held_by_claims(pods):
            if name in self.names:
                held.setdefault(pod, set()).add(name)
        return {pod: sorted(held[pod]) for pod in sorted(held)}

    def ask(self, settings: Settings) -> dict[str, list[str]] | None:
        """What `held` returns, by the kubelet's answer; None, which is logged, if it does not answer."""
        try:
            return self.held(asyncio.run(list_pods(settings.pod_resources_socket)))
        except grpc.aio.AioRpcError as error:
            text = "which pods hold devices by `front_end: %s` is not known, and none is waited for: %s: %s"
            log.warning(text, self.other, settings.pod_resources_socket, error.details())
            return None

    def refuse_held(self, settings: Settings) -> None:
        """Raise DevherdError if pods hold devices of the other front end, unless the kubelet does not answer."""
        if self.names and (held := self.ask(settings)):
            raise DevherdError(
                f"`front_end: {self.front_end}` cannot serve this node yet",
                f"pods hold devices by `{self.other}`, which would be given twice: {listed(held)}",
                f"end these pods, or start devherd with `front_end: {self.other}`",
            )


def _held_by_resources(pods: ListPodResourcesResponse) -> Iterator[tuple[str, str]]:
    for (resource_name, _), holders in parse(pods).items():
        yield from ((resource_name, f"{holder['namespace']}/{holder['pod']}") for holder in holders)


def _held_by_claims(pods: ListPodResourcesResponse) -> Iterator[tuple[str, str]]:
    for device, holders in claimed(pods).items():
        yield from ((device.driver, f"{holder['namespace']}/{holder['pod']}") for holder in holders)


def listed(held: dict[str, list[str]]) -> str:
    """The first pods, with what they hold: `default/train (nvidia.com/gpu) and 3 more`."""
    named = [f"{pod} ({', '.join(names)})" for pod, names in held.items()]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def beside(front_end: FrontEnd, settings: Settings, offered: Iterable[str] = ()) -> OtherFrontEnd:
    """What may be held beside this front end; `offered`: the names of its offers. Raises OSError without a descriptor.

    Devices that the device plugin of another vendor has given under one of the offered names count, too.
    """
    if front_end == "dra":
        states = spool.read_all(settings.state_directory, spool_pb2.ResourceState)
        there = spool.read_or_empty(settings.offers_file, spool_pb2.Offers).offers
        names = {*offered, *(state.name for _, state in states), *(offer.name for offer in there)}
    else:
        served = spool.read_all(settings.dra_directory, spool_pb2.DraState)
        prepared = spool.read_or_empty(settings.prepared_claims_file, spool_pb2.PreparedClaims).claims
        names = {*(driver.name for _, state in served for driver in state.drivers), *(one.driver for one in prepared)}
    return OtherFrontEnd(front_end, frozenset(names))


def refuse_change(front_end: FrontEnd, running: FrontEnd, settings: Settings) -> None:
    """Raise DevherdError if an instance that serves devices by the front end `running` is to serve by another."""
    if front_end == running:
        return
    offers = spool.read_or_empty(settings.offers_file, spool_pb2.Offers).offers
    if not (number := sum(len(offer.devices) for offer in offers)):
        return
    held = beside(front_end, settings).ask(settings)
    pods = (
        "which pods hold them is not known" if held is None else f"held by {listed(held)}" if held else "no pod has one"
    )
    raise DevherdError(
        f"`front_end` stays `{running}` while devherd runs",
        f"it has {amount(number, 'device')} here, {pods}",
        f"{'' if held == {} else 'end these pods, '}end devherd, and start it with `front_end: {front_end}`",
    )
