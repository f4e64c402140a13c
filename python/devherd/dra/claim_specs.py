"""CDI specs of claims: what the devices that a container gets together need beside their static specs."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devherd import cdi, spool
from devherd.dra.claim import Allocated
from devherd.dra.records import Key
from devherd.proto.spool_pb2 import Edits

NO_REQUEST = "*"
"""Stands for the request of a container that names none, and gets all devices; no request can have this name."""
_BEGINNING, _END = "devherd-claim-", ".json"
_READABLE_BY_ALL = 0o644


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The spec of a claim."""

    text: str
    names: Mapping[str, str]
    """The CDI name by request, and by NO_REQUEST where that is another one."""


def claim_spec(driver: str, uid: str, devices: Sequence[tuple[Allocated, Edits]]) -> ClaimSpec | None:
    """The spec of a claim's devices by way `cdi`, in the order of the allocation; None if they need none.

    A container gets the devices of the request that it names, or all, and a runtime keeps the last value of a variable.
    So each request has a CDI device with its variables joined, and there is one with those of all requests.
    """
    by_request: dict[str, list[Edits]] = {}
    for device, edits in devices:
        by_request.setdefault(device.request, []).append(edits)
    kind = f"k8s.{driver}/claim"
    asking = {request: edits for request, edits in by_request.items() if any(one.envs or one.mounts for one in edits)}
    members = {f"{uid}-{request}": edits for request, edits in asking.items()}
    names = {request: f"{kind}={uid}-{request}" for request in asking}
    if len(asking) > 1:
        members[uid] = [edits for _, edits in devices]
        names[NO_REQUEST] = f"{kind}={uid}"
    text = cdi.claim_spec(kind, members)
    return None if text is None else ClaimSpec(text, names)


class ClaimSpecs:
    """The files, beside the static specs, whose writer leaves them alone: it removes only files that it has listed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, key: Key, text: str) -> None:
        """Write the spec of a claim, unless it is there; with an empty text, there is none. Raises OSError."""
        if text:
            path = self._path(key)
            with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
                if path.read_text() == text:
                    return
            self.directory.mkdir(parents=True, exist_ok=True)
            spool.replace(path, text.encode(), _READABLE_BY_ALL)

    def remove(self, key: Key) -> None:
        """Remove the spec of a claim, if there is one. Raises OSError."""
        self._path(key).unlink(missing_ok=True)

    def remove_outlived(self, kept: Collection[Key], booted: float) -> None:
        """Remove the specs of all claims but these that are older than the boot, in Unix seconds. Raises OSError.

        A newer one may be of a running pod's whose record was lost: its container is made again by the same ids.
        """
        names = {self._path(key).name for key in kept}
        for path in self.directory.glob(f"{_BEGINNING}*{_END}"):
            with contextlib.suppress(FileNotFoundError):  # the other process has removed it
                if path.name not in names and path.stat().st_mtime < booted:
                    path.unlink()

    def has_static(self, name: str, *, is_published: bool) -> bool:
        """Whether the scanner has written the spec of a device's CDI name.

        Those of published devices are written before: there only the file can be missing.
        """
        path = self.directory / cdi.file_name(name)
        if is_published:
            return path.exists()
        try:
            return name in cdi.read(path.read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _path(self, key: Key) -> Path:
        driver, uid = key
        return self.directory / f"{_BEGINNING}{driver}-{uid}{_END}"
