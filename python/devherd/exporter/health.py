"""Reasons why the instance is not alive (/healthz) or not ready (/readyz), one per line."""

import os
from collections.abc import Iterator

from devherd.instance.read import RUNNING, Herd
from devherd.process import Heartbeats

STALE_SECONDS = 10.0


def reasons_not_alive(herd: Herd, heartbeats: Heartbeats) -> Iterator[str]:
    """Yield a reason if the supervisor is gone, and one if the scanner does not run or has no recent heartbeat."""
    if not herd.supervisor_pid:
        yield "supervisor: children.pb is missing"
        return
    if not _is_running(herd.supervisor_pid):
        yield f"supervisor: process {herd.supervisor_pid} is gone"
    scanner = herd.children.get("scanner")
    if scanner is None or scanner.state not in {RUNNING, "STARTING"}:
        yield f"scanner: {scanner.state if scanner else 'not started'}"
        return
    silence = heartbeats.silence_seconds(scanner.heartbeat_slot)
    if silence > STALE_SECONDS:
        yield f"scanner: no heartbeat for {silence:.0f} s"


def reasons_not_ready(herd: Herd) -> Iterator[str]:
    """Yield a reason for each resource that is not registered with the kubelet, or one if no scan has finished."""
    if herd.scan is None and not herd.resources:
        yield "scanner: no scan has finished yet"
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        if not registration.registered:
            yield f"{resource.name}: {registration.detail}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user
    return True
