"""What the resource children say of the lists that they have sent, read from their state files."""

from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2

_PREFIX = "resource:"


class Acknowledgements:
    """Asks the files of the children and of the supervisor; keeps nothing."""

    def __init__(self, state_directory: Path, children_file: Path) -> None:
        self._state_directory = state_directory
        self._children_file = children_file

    def has(self, key: str, version: int | None) -> bool:
        """Whether the kubelet can be shown no list of the resource that is older than `version`; None: no list at all.

        Either the child says so, or it does not run: with the process ends the kubelet's stream, and from then on the
        kubelet counts every device of the resource as Unhealthy. A new process begins with the list of the day.
        """
        if key not in self.running():
            return True
        return version is not None and self._sent_version(key) >= version

    def running(self) -> set[str]:
        """The resources that have a process, by key."""
        try:
            children = spool.read(self._children_file, spool_pb2.Children).children
        except (FileNotFoundError, spool.SpoolError):
            return set()
        return {child.name.removeprefix(_PREFIX) for child in children if child.pid and child.name.startswith(_PREFIX)}

    def _sent_version(self, key: str) -> int:
        try:
            return spool.read(spool.path_of(self._state_directory, key), spool_pb2.ResourceState).sent_version
        except (FileNotFoundError, spool.SpoolError):
            return 0
