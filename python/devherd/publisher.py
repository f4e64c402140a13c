"""Resources → spool files: only what changed is written, and a device leaves one resource before it enters another."""

from collections.abc import Iterable
from pathlib import Path

from devherd import spool
from devherd.inventory import DeviceKey, key_of
from devherd.proto import spool_pb2


class Publisher:
    """The writer of `<run-dir>/resources`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._published: dict[str, spool_pb2.Resource] = dict(spool.read_all(directory, spool_pb2.Resource))

    @property
    def published(self) -> list[spool_pb2.Resource]:
        """What stands in the directory."""
        return list(self._published.values())

    def publish(self, resources: Iterable[spool_pb2.Resource]) -> bool:
        """Make the directory say this; False when devices that change resource have left but not yet entered.

        Then call it again after a moment: the kubelet must have seen them leave. Raises OSError when a file cannot be
        written; what was written stands.
        """
        wanted = {spool.key_of(resource.name): resource for resource in resources}
        home = {device: key for key, resource in self._published.items() for device in _devices_of(resource)}
        complete = True
        for key, resource in wanted.items():
            settled = _without(resource, {device for device in _devices_of(resource) if home.get(device, key) != key})
            complete = complete and settled is resource
            if settled.devices or key in self._published:
                self._write(key, settled)
        for key in self._published.keys() - wanted.keys():
            spool.path_of(self._directory, key).unlink(missing_ok=True)
            del self._published[key]
        return complete

    def _write(self, key: str, resource: spool_pb2.Resource) -> None:
        if self._published.get(key) != resource or not spool.path_of(self._directory, key).exists():
            spool.write(spool.path_of(self._directory, key), resource)
            self._published[key] = resource


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
