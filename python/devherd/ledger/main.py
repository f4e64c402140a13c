"""Process `source:ledger`: every 10 s, compares who has which device open with the kubelet's assignments.

It writes conflicts as findings, and everything it has seen to `<run-dir>/ledger`, for metrics and `devherd explain`.
A conflict is a finding once two looks in a row have seen it: a pod may be about to start or to end.
"""

import asyncio
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc.aio

from devherd import spool
from devherd.inventory import DeviceKey, key_of
from devherd.kubelet.pod_resources import ask_beside_the_heartbeat, list_pods, parse
from devherd.ledger.compare import (
    CHECKPOINT,
    HELD_ELSEWHERE,
    Conflict,
    Given,
    conflicts,
    entries_of,
    given,
    names_of,
    remembered,
)
from devherd.ledger.processes import NotSeenError, Number, Opened, opened, own_nodes
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import devices_pb2, health_pb2, spool_pb2
from devherd.reasons.registry import LEDGER
from devherd.settings import Settings

LOOK_SECONDS = 10.0
_LONGEST_DETAIL = 200
log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until its request changes."""
    request = child.settings.requests_directory / f"{LEDGER}.json"
    return asyncio.run(ask_beside_the_heartbeat(child, _look_until_changed(request, child.settings)))


async def _look_until_changed(request: Path, settings: Settings) -> int:
    ledger, taken, next_look = None, b"", 0.0
    while (content := _content(request)) in {b"", taken} or ledger is None:  # empty: not there yet, or the end is near
        if ledger is None and content:
            taken, order = content, json.loads(content)
            ledger = LedgerLooks(settings, order["ignore"], order["boot_id"])
        if ledger is not None and time.monotonic() >= next_look:
            await ledger.look()
            next_look = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(BEAT_PERIOD_SECONDS)
    return RENEW


def _content(request: Path) -> bytes:
    with suppress(FileNotFoundError):
        return request.read_bytes()
    return b""


class LedgerLooks:
    """Looks at processes and assignments, and keeps what earlier looks have seen."""

    def __init__(self, settings: Settings, ignore: Collection[str], boot_id: str) -> None:
        self._settings = settings
        self._ignore = ignore
        self._boot_id = boot_id
        self._supervisor = os.getppid()
        self._file = settings.ledger_file
        self._complaint = Once(log.warning)
        self._before: set[Conflict] = set()
        self._standing: set[Conflict] = set()
        self._given: dict[DeviceKey, Given] = {}
        self._former: dict[DeviceKey, set[str]] = {}
        kept = spool.read_or_empty(self._file, spool_pb2.Ledger)
        for device in kept.devices if kept.boot_id == boot_id else ():
            key = device.vendor, device.card, device.device
            self._given[key] = Given(frozenset(device.pods), frozenset(device.uids))
            self._former[key] = {*device.former_uids}

    async def look(self) -> None:
        """Look, and write what was found, or why nothing could be seen."""
        findings = health_pb2.Findings(source=LEDGER, boot_id=self._boot_id, timestamp_seconds=time.time())
        findings.look_monotonic_seconds = time.monotonic()
        try:
            findings.findings.extend(await self._found())
        except (NotSeenError, OSError, ValueError) as error:
            findings.failed = str(error)
        except grpc.aio.AioRpcError as error:
            findings.failed = f"{self._settings.pod_resources_socket}: {error.details()}"
        if findings.failed:
            self._complaint.complain("cannot see who holds which device: %s", findings.failed)
        else:
            self._complaint.over()
        with suppress(OSError):  # written again with the next look; a full directory is reported elsewhere
            spool.write(spool.path_of(self._settings.findings_directory, LEDGER), findings)

    async def _found(self) -> list[health_pb2.Finding]:
        """One look, processes first: a pod that starts meanwhile has its devices before it has processes."""
        settings = self._settings
        offers = spool.resources_in(spool.read_or_empty(settings.offers_file, spool_pb2.Offers))
        inventory = spool.read_or_empty(settings.devices_file, devices_pb2.Inventory)
        offered = {key_of(device): device for offer in offers for device in offer.devices}
        nodes = {
            number: place for number, place in own_nodes(inventory, settings.host_root).items() if place[0] in offered
        }
        open_by = _by_device(opened(nodes, self._ignore, self._supervisor), nodes)
        allocations = parse(await list_pods(settings.pod_resources_socket))
        entries = entries_of((settings.plugin_directory / CHECKPOINT).read_bytes())
        now = given(offers, allocations, entries)
        self._former = remembered(self._former, self._given, now, open_by)
        self._given = now
        alone = {key: seen for key, seen in open_by.items() if not _is_shared(offered[key])}
        found = conflicts(alone, now, self._former, self._has_ended)
        self._standing, self._before = found & self._before, found
        self._write(open_by)
        names = names_of(now.values())
        return [_finding(one, nodes, now.get(one.key, Given()), names) for one in sorted(self._standing)]

    def _has_ended(self, uid: str) -> bool:
        """True if the kubelet's directory of pods can be seen and has no entry for this pod."""
        pods = self._settings.kubelet_root / "pods"
        return pods.is_dir() and not (pods / uid).exists()

    def _write(self, open_by: Mapping[DeviceKey, Sequence[Opened]]) -> None:
        names = names_of(self._given.values())
        message = spool_pb2.Ledger(boot_id=self._boot_id)
        wrong = {one.key for one in self._standing if one.reason == HELD_ELSEWHERE}
        for key in sorted(self._given.keys() | open_by.keys()):
            holder = self._given.get(key, Given())
            device = message.devices.add(vendor=key[0], card=key[1], device=key[2], is_held_elsewhere=key in wrong)
            device.pods.extend(sorted(holder.pods))
            device.uids.extend(sorted(holder.uids))
            device.former_uids.extend(sorted(self._former.get(key, ())))
            for one in open_by.get(key, ()):
                device.processes.add(
                    pid=one.pid, command=one.command, pod=_pod_of(one, names), container_id=one.place.container_id
                )
        spool.write(self._file, message)


def _by_device(
    processes: Sequence[Opened], nodes: Mapping[Number, tuple[DeviceKey, str]]
) -> dict[DeviceKey, list[Opened]]:
    found = defaultdict(list)
    for one in processes:
        found[nodes[one.number][0]].append(one)
    return dict(found)


def _is_shared(device: spool_pb2.Device) -> bool:
    return bool(device.replicas or device.shares)


def _pod_of(process: Opened, names: Mapping[str, str]) -> str:
    """`namespace/name`, or the uid of a pod whose name is not known; empty for a process of none."""
    return names.get(process.place.pod_uid, process.place.pod_uid)


def _finding(
    conflict: Conflict, nodes: Mapping[Number, tuple[DeviceKey, str]], holder: Given, names: Mapping[str, str]
) -> health_pb2.Finding:
    process = conflict.process
    pod = _pod_of(process, names)
    whose = f"of pod {pod}" if pod else "of no pod"
    has = f"process {process.pid} ({process.command}) {whose} has {nodes[process.number][1]} open"
    given_to = f"; the kubelet has given it to {', '.join(sorted(holder.pods))}" if holder.pods else ""
    left = ""
    if process.is_killed:
        left = ", was killed and does not end"
    elif conflict.reason != HELD_ELSEWHERE:
        left = ", and the pod does not hold the device any more"
    vendor, card, device = conflict.key
    return health_pb2.Finding(
        at=health_pb2.Target(vendor=vendor, card=card, device=device),
        reason=conflict.reason,
        detail=f"{has}{left}{given_to}"[:_LONGEST_DETAIL],
        file=f"/proc/{process.pid}/fd",
        value=process.command,
    )
