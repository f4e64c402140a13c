"""Device-info files: what Multus puts into a pod's network status for each PCI function that the pod has.

Their form and their names are those of the device information specification of the Kubernetes Network Plumbing
Working Group, version 1.1.0, as sriov-network-device-plugin writes them when a function is allocated. Here they are
written before the function is offered, since Allocate does no I/O, and stay as long as it is offered.
"""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2

_READABLE_BY_ALL = 0o444


class DeviceInfo:
    """The files in one directory. Those that an earlier instance left are taken over one by one, by their names."""

    def __init__(self) -> None:
        self._left: dict[Path, str] = {}

    def stands(self) -> bool:
        """Whether nobody has taken a file away, as the SR-IOV plugin does with those of its names when it stops."""
        return all(path.exists() for path in self._left)

    def publish(self, directory: Path | None, resources: Iterable[spool_pb2.Resource]) -> list[spool_pb2.Problem]:
        """Write the files for the RDMA functions in these resources, and take away those that were for others.

        What cannot be written is a problem of its resource.
        """
        wanted = {} if directory is None else files(directory, resources)
        for path in self._left.keys() - wanted.keys():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            del self._left[path]
        problems: dict[str, spool_pb2.Problem] = {}
        for path, (resource_name, text) in wanted.items():
            try:
                self._put(path, text)
            except OSError as error:
                problems.setdefault(resource_name, _problem(resource_name, path, error))
        return list(problems.values())

    def _put(self, path: Path, text: str) -> None:
        if self._left.get(path) == text and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        spool.replace(path, text.encode(), _READABLE_BY_ALL)
        self._left[path] = text


def files(directory: Path, resources: Iterable[spool_pb2.Resource]) -> dict[Path, tuple[str, str]]:
    """By file: the resource that it is for, and the text. Pure."""
    return {
        directory / f"{resource.name}-{device.id}-device.json".replace("/", "-"): (resource.name, _text(device))
        for resource in resources
        for device in resource.devices
        if device.vendor == "rdma"
    }


def _text(device: spool_pb2.Device) -> str:
    pci = {"pci-address": device.id, "rdma-device": device.attributes["ibdev"]}
    return json.dumps({"type": "pci", "version": "1.1.0", "pci": pci}, separators=(",", ":"))


def _problem(resource_name: str, path: Path, error: OSError) -> spool_pb2.Problem:
    cure = "Multus will not tell pods of the device; where devherd is a pod, mount the directory in it"
    return spool_pb2.Problem(
        vendor="rdma", path=resource_name, error=f"{path} cannot be written: {error.strerror or error}: {cure}"
    )
