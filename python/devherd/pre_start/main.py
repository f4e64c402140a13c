"""Listens for the resource children, forks a process for each request, and remembers which devices are suspect.

A request and its answer are a line of JSON each: `{"resource_name", "device_ids"}`, `{"refusal", "done"}`.
"""

import contextlib
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Collection
from pathlib import Path

from devherd import fork, signals, spool
from devherd.config.resolved import awaited_config
from devherd.inventory import DeviceKey, key_of
from devherd.pre_start.checks import Checks
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto import spool_pb2
from devherd.reasons.registry import temporary_directory
from devherd.spool import Identity, identity_of

log = logging.getLogger(__name__)

MOST_REQUESTS = 64
"""Limit of requests at once: the kubelet starts the containers of a pod one by one."""
_REQUEST_SECONDS = 2.0
_MOST_REQUEST = 1 << 20
_CONFIRMED = 0
"""Exit code of a process whose program has shown that suspects are well; 1: anything else."""


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until its directory is made again."""
    signals.remember()
    temporary = temporary_directory(child.settings.pre_start_socket.parent)
    shutil.rmtree(temporary, ignore_errors=True)  # what killed programs have left
    os.environ["TMPDIR"] = str(temporary)
    return Server(child).run()


class Server:
    """Takes requests, and forks a process that answers each."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._socket = child.settings.pre_start_socket
        self._suspects = Suspects(child.settings.offers_file, self._socket.parent / "suspects.json")
        self._supervisor = os.getppid()
        self._workers: dict[int, tuple[float, list[DeviceKey]]] = {}
        """By process id: the arrival time of the request that it answers, and the request's devices."""

    def run(self) -> int:
        """Serve until asked to end, or until a new process is needed; returns the exit code."""
        while not self._is_over():
            try:
                with self._listening() as listener:
                    while self._socket.exists() and not self._is_over():
                        self._look()
                        for waiting in signals.ready([listener], BEAT_PERIOD_SECONDS):
                            connection, _ = waiting.accept()
                            with connection:
                                self._take(connection, listener)
            except OSError as error:
                log.error("cannot serve at %s: %s; trying again", self._socket, error)
                self._look()
                signals.rest(BEAT_PERIOD_SECONDS)
        return 0 if signals.is_to_end() else RENEW

    def _is_over(self) -> bool:
        return signals.is_to_end() or self._child.has_outgrown_its_sandbox()

    def _look(self) -> None:
        self._child.beat()
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            since, keys = self._workers.pop(pid, (0.0, []))
            if os.waitstatus_to_exitcode(status) == _CONFIRMED:
                self._suspects.clear(keys, since)
        self._suspects.look()

    def _listening(self) -> socket.socket:
        temporary_directory(self._socket.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(BEAT_PERIOD_SECONDS)
        listener.bind(str(self._socket))
        listener.listen()
        return listener

    def _take(self, connection: socket.socket, listener: socket.socket) -> None:
        connection.settimeout(_REQUEST_SECONDS)
        try:
            with connection.makefile("rb") as lines:
                request = json.loads(lines.readline(_MOST_REQUEST))
            resource_name, ids = str(request["resource_name"]), frozenset(map(str, request["device_ids"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a request that cannot be read: %s", error)
            return
        if len(self._workers) >= MOST_REQUESTS:
            _answer(connection, f"{MOST_REQUESTS} other starts wait for process pre-start", "")
            return
        try:
            offers = spool.resources_in(spool.read_or_empty(self._child.settings.offers_file, spool_pb2.Offers))
        except OSError as error:
            _answer(connection, f"process pre-start does not see the devices: {error}", "")
            return
        devices = [
            (device_id, device)
            for offer in offers
            if offer.name == resource_name
            for device_id, device in spool.listed(offer)
            if device_id in ids and device.HasField("pre_start")
        ]
        self._look()
        now = time.monotonic()
        checks = Checks(self._child.settings, resource_name, devices, self._supervisor)

        def examine() -> int:
            listener.close()
            return self._examine(connection, checks)

        self._workers[fork.forked("the examination of a start", examine)] = now, [key_of(one) for _, one in devices]

    def _examine(self, connection: socket.socket, checks: Checks) -> int:
        """The work of a process that answers one request; returns its exit code."""
        try:
            config = awaited_config(self._child.settings.resolved_config_file, bool)
            refusal, done = checks.run(config.ledger.ignore, self._suspects.keys, os.getppid())
        except Exception:
            _answer(connection, "process pre-start has failed: see `devherd ctl tail pre-start`", "")
            raise
        _answer(connection, refusal, done)
        return _CONFIRMED if checks.has_confirmed else 1


def _answer(connection: socket.socket, refusal: str, done: str) -> None:
    with contextlib.suppress(OSError):  # the resource child, or the kubelet, has given up
        connection.sendall(json.dumps({"refusal": refusal, "done": done}).encode() + b"\n")


class Suspects:
    """The devices that have had a finding since a program last confirmed that they are well, kept in a file."""

    def __init__(self, offers_file: Path, file: Path) -> None:
        self._offers_file, self._file = offers_file, file
        self._seen: Identity | None = None
        self._found: dict[DeviceKey, float] = {}
        """When each of them was seen to have a finding: CLOCK_MONOTONIC."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._found = dict.fromkeys(
                ((vendor, card, one) for vendor, card, one in json.loads(file.read_bytes())), 0.0
            )

    @property
    def keys(self) -> Collection[DeviceKey]:
        """The suspect devices."""
        return self._found.keys()

    def look(self) -> None:
        """Add the devices that have a finding now."""
        seen = identity_of(self._offers_file)
        if seen is None or seen == self._seen:
            return
        try:
            offers = spool.read_or_empty(self._offers_file, spool_pb2.Offers).offers
        except OSError:  # no descriptor is left: looked at again
            return
        self._seen = seen
        now = time.monotonic()
        self._put(
            self._found
            | {
                key_of(device): now
                for offer in offers
                for device in offer.devices
                if device.pre_start.program and (device.reasons or device.warnings)
            }
        )

    def clear(self, keys: Collection[DeviceKey], since: float) -> None:
        """Remove these devices: a program started at `since` has confirmed them; devices with newer findings stay."""
        self._put({key: found for key, found in self._found.items() if key not in keys or found > since})

    def _put(self, found: dict[DeviceKey, float]) -> None:
        is_new = found.keys() != self._found.keys()
        self._found = found
        if is_new:
            with contextlib.suppress(OSError):
                spool.replace(self._file, json.dumps(sorted(found)).encode())
