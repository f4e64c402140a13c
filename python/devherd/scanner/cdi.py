"""CDI spec files: written before a device that needs one is advertised, removed when the device is forgotten.

Allocate does no I/O, so the file must be there before the kubelet may hand the device out. The format is the
Container Device Interface specification, version 0.5.0, one device a file; JSON, which is YAML too, under the name that
vendor plugins use.
"""

import json
import os
from pathlib import Path

from devherd.proto import spool_pb2

UNWRITABLE = "cdi-unwritable"


def spec_path(directory: Path, qualified_name: str) -> Path:
    """`intel.cdi.k8s.io/fpga=dfl-fme.0` is in `intel.cdi.k8s.io-fpga-dfl-fme.0.yaml`."""
    return directory / f"{qualified_name.replace('/', '-').replace('=', '-')}.yaml"


def spec_text(qualified_name: str, container_edits: str) -> str:
    """The spec of one device; `container_edits` is the JSON of its containerEdits."""
    kind, _, name = qualified_name.partition("=")
    spec = {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [{"name": name, "containerEdits": json.loads(container_edits)}],
    }
    return json.dumps(spec, indent=2) + "\n"


class CdiSpecs:
    """The spec files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[str, str] = {}

    def publish(self, device: spool_pb2.Device) -> OSError | None:
        """Put the device's spec in place; the error when that cannot be done, and then its pods would not start."""
        for name, edits in device.cdi_edits.items():
            text = spec_text(name, edits)
            path = spec_path(self._directory, name)
            if self._written.get(name) == text and path.exists():
                continue
            try:
                _replace(path, text)
            except OSError as error:
                return error
            self._written[name] = text
        return None

    def withdraw(self, device: spool_pb2.Device) -> None:
        """Remove the spec of a device that is forgotten."""
        for name in device.cdi_edits:
            if self._written.pop(name, None) is not None:
                spec_path(self._directory, name).unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.rename(path)
