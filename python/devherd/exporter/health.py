"""Reasons why the instance is not alive (/healthz) or not ready (/readyz), one per line."""

import os
from collections.abc import Iterator

from devherd.instance.read import RUNNING, STARTING, SUPERVISOR, InstanceState, is_by_dra
from devherd.waits import USUAL_WAITS

NO_SIGN_OF_LIFE = f"no heartbeat for more than {USUAL_WAITS.silence:.0f} s"


def reasons_not_alive(herd: InstanceState) -> Iterator[str]:
    """Yield a reason if the supervisor is gone or hangs, and one if the scanner does not run or hangs."""
    if not herd.supervisor_pid:
        yield "supervisor: children.pb is missing"
        return
    if not _is_running(herd.supervisor_pid):
        yield f"supervisor: process {herd.supervisor_pid} is gone"
    elif SUPERVISOR in herd.silent:
        yield f"supervisor: {NO_SIGN_OF_LIFE}; children that end are not replaced"
    scanner = herd.children.get("scanner")
    if scanner is None or scanner.state not in {RUNNING, STARTING}:
        yield f"scanner: {scanner.state if scanner else 'not started'}"
        return
    if scanner.name in herd.silent:
        yield f"scanner: {NO_SIGN_OF_LIFE}"


def reasons_not_ready(herd: InstanceState) -> Iterator[str]:
    """Yield a reason for each resource or DRA driver that is not registered, or one if no scan has finished."""
    if herd.scan is None and not herd.resources:
        yield "scanner: no scan has finished yet"
    if overdue := herd.overdue_scan():
        yield f"scanner: {overdue}"
    for resource in herd.resources:
        if not is_by_dra(resource) and not (registration := herd.registration(resource.name)).registered:
            yield f"{resource.name}: {registration.detail}"
    yield from (f"{name}: {why}" for name, why in herd.drivers_waiting())


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user
    return True
