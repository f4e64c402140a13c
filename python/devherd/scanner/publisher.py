"""Resources → spool files: only what changed is written, and a device leaves one resource before it enters another."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2
from devherd.scanner.file_identity import Identity, identity_of
from devherd.scanner.inventory import DeviceKey, key_of


class Publisher:
    """The writer of `<run-dir>/resources`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._published: dict[str, spool_pb2.Resource] = dict(spool.read_all(directory, spool_pb2.Resource))
        self._home = {key: _devices_of(resource) for key, resource in self._published.items()}
        self._left: dict[str, Identity | None] = {}

    @property
    def published(self) -> list[spool_pb2.Resource]:
        """What stands in the directory."""
        return list(self._published.values())

    def stands(self) -> bool:
        """Whether the directory is as it was left: nothing torn, removed or put in by somebody else."""
        return spool.keys_in(self._directory) == self._published.keys() and all(map(self._is_intact, self._published))

    def publish(self, resources: Iterable[spool_pb2.Resource]) -> bool:
        """Make the directory say this and no more; False when devices that move have left but not yet entered.

        Then call it again after a moment: the kubelet must have seen them leave. Raises OSError when a file cannot be
        written; what was written stands.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        wanted = {spool.key_of(resource.name): resource for resource in resources}
        moving = self._moving(wanted)
        for key, resource in wanted.items():
            settled = _without(resource, moving.get(key, set()))
            if settled.devices or key in self._published:
                self._write(key, settled)
        for key in (self._published.keys() - wanted.keys()) | (spool.keys_in(self._directory) - self._published.keys()):
            spool.path_of(self._directory, key).unlink(missing_ok=True)
            self._published.pop(key, None)
            self._home.pop(key, None)
        return not moving

    def _moving(self, wanted: Mapping[str, spool_pb2.Resource]) -> dict[str, set[DeviceKey]]:
        """The devices that stand in one resource and are wanted in another, by the key of that other."""
        arriving = {key: _devices_of(resource) - self._home.get(key, set()) for key, resource in wanted.items()}
        if not any(arriving.values()):
            return {}
        standing = set().union(*self._home.values())
        return {key: devices & standing for key, devices in arriving.items() if devices & standing}

    def _write(self, key: str, resource: spool_pb2.Resource) -> None:
        if self._published.get(key) != resource or not self._is_intact(key):
            spool.write(spool.path_of(self._directory, key), resource)
            self._left[key] = identity_of(spool.path_of(self._directory, key))
            self._published[key] = resource
            self._home[key] = _devices_of(resource)

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
