"""Resources → spool files: only what changed is written, and a device leaves one resource before it enters another."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from devherd import spool
from devherd.inventory import DeviceKey, key_of
from devherd.proto import spool_pb2
from devherd.scanner.acknowledgements import Acknowledgements
from devherd.scanner.moves import Moves
from devherd.spool.identity import Identity, identity_of


class Publisher:
    """The writer of `<run-dir>/offers/device-plugin`."""

    def __init__(self, directory: Path, acknowledgements: Acknowledgements) -> None:
        self._directory = directory
        self._published: dict[str, spool_pb2.Resource] = dict(spool.read_all(directory, spool_pb2.Resource))
        self._home = {key: _devices_of(resource) for key, resource in self._published.items()}
        self._left: dict[str, Identity | None] = {
            key: identity_of(spool.path_of(directory, key)) for key in self._published
        }
        self._moves = Moves(acknowledgements.has)
        self._version = 0
        for key in self._published.keys() | acknowledgements.running():
            version = self._published[key].version if key in self._published else None
            self._moves.may_show_others(key, version)
            self._version = max(self._version, version or 0)

    @property
    def published(self) -> list[spool_pb2.Resource]:
        """The content of the directory."""
        return list(self._published.values())

    def stands(self) -> bool:
        """Whether the directory is as it was left: nothing torn, removed or put in by somebody else."""
        return spool.keys_in(self._directory) == self._published.keys() and all(map(self._is_intact, self._published))

    def publish(self, resources: Iterable[spool_pb2.Resource]) -> bool:
        """Write exactly these resources; False when devices that move have left but not yet entered.

        Then call it again when a child has written its state: the list without them must have been sent before another
        resource lists them. Raises OSError when a file cannot be written; what was written stays.
        """
        self._directory.parent.mkdir(mode=0o700, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        wanted = {spool.key_of(resource.name): resource for resource in resources}
        self._let_go(wanted)
        complete = True
        for key, resource in wanted.items():
            waiting = self._moves.held_back(key, _devices_of(resource) - self._home.get(key, set()))
            settled = _without(resource, waiting)
            if settled.devices or key in self._published:
                self._write(key, settled)
            complete &= not waiting
        return complete

    def _let_go(self, wanted: Mapping[str, spool_pb2.Resource]) -> None:
        """Remove what is no longer wanted: whole resources, and the devices that leave one."""
        for key in (self._published.keys() - wanted.keys()) | (spool.keys_in(self._directory) - self._published.keys()):
            spool.remove(self._directory, key)
            self._published.pop(key, None)
            self._moves.left(key, None, self._home.pop(key, set()))
        for key, resource in wanted.items():
            leaving = self._home.get(key, set()) - _devices_of(resource)
            if leaving:
                arriving = _devices_of(resource) - self._home[key]
                self._write(key, _without(resource, arriving))
                self._moves.left(key, self._version, leaving)

    def _write(self, key: str, resource: spool_pb2.Resource) -> None:
        stamped = spool_pb2.Resource()
        stamped.CopyFrom(resource)
        stamped.version = self._published[key].version if key in self._published else 0
        if self._published.get(key) != stamped or not self._is_intact(key):
            self._version = stamped.version = max(self._version + 1, time.time_ns())
            spool.write(spool.path_of(self._directory, key), stamped)
            self._left[key] = identity_of(spool.path_of(self._directory, key))
            if key not in self._published:
                self._moves.stands_again(key, stamped.version)
            self._published[key] = stamped
            self._home[key] = _devices_of(stamped)

    def _is_intact(self, key: str) -> bool:
        identity = identity_of(spool.path_of(self._directory, key))
        return identity is not None and identity == self._left.get(key)


def _devices_of(resource: spool_pb2.Resource) -> set[DeviceKey]:
    return {key_of(device) for device in resource.devices}


def _without(resource: spool_pb2.Resource, leaving: set[DeviceKey]) -> spool_pb2.Resource:
    if not leaving:
        return resource
    rest = spool_pb2.Resource()
    rest.CopyFrom(resource)
    del rest.devices[:]
    rest.devices.extend(device for device in resource.devices if key_of(device) not in leaving)
    return rest
