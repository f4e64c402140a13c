"""The support archive: everything that a maintainer asks for first, in one file that says what it holds."""

import errno
import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from devherd.doctor.redaction import redacted
from devherd.errors import DevherdError
from devherd.settings import Settings

LOG_BYTES = 256 * 1024
"""Of the end of each log."""
_CLASSES = {"02": "network", "03": "display", "0b": "processor", "12": "accelerator"}
"""PCI base classes of what devherd may serve."""

CONTENTS: Mapping[str, str] = {
    "README.txt": "this list",
    "doctor.txt": "the report of `devherd doctor`",
    "doctor.json": "the same for programs",
    "scan.json": "`devherd scan --explain`: devices with serial numbers and UUIDs",
    "status.json": "`devherd status`: with the names of the pods that hold devices",
    "config.yaml": "the configuration; values that look like secrets are left out, and so are arguments of programs",
    "events.jsonl": "`devherd events`",
    "logs/": f"the last {LOG_BYTES >> 10} KiB of each process's log",
    "versions.txt": "devherd, Python, kernel, and DEVHERD_ variables",
    "pci.txt": "the kernel's list of network, display, processor and accelerator functions, with driver",
}
Part = Callable[[], str | bytes]


def write(path: Path, parts: Mapping[str, Part]) -> list[str]:
    """Write an archive of these parts, by name; which ones could not be had, each with why. Raises OSError.

    It is there whole or not at all, and from its first byte on its owner's alone. A link is not followed.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileExistsError(errno.EEXIST, "it is there, and it is not a file")
    descriptor, temporary = tempfile.mkstemp(prefix=".devherd-support-", dir=path.parent)  # 0600, O_EXCL, O_NOFOLLOW
    try:
        with os.fdopen(descriptor, "wb") as file:
            missing = _pack(file, parts)
        Path(temporary).rename(path)
    except BaseException:
        Path(temporary).unlink()
        raise
    return missing


def _pack(file: BinaryIO, parts: Mapping[str, Part]) -> list[str]:
    missing = []
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, part in parts.items():
            try:
                content = part()
            except (OSError, DevherdError, ValueError) as error:
                missing.append(f"{name}: {error}")
                continue
            _add(archive, name, content)
        _add(archive, "README.txt", readme(missing))
    return missing


def readme(missing: list[str]) -> str:
    """What the archive says of itself."""
    held = "".join(f"  {name:<14} {what}\n" for name, what in CONTENTS.items())
    lacking = "".join(f"  {one}\n" for one in missing)
    return (
        "Support archive of devherd.\n\nIt holds names of this host, of its devices and of pods that hold them.\n"
        f"Look through it before you give it to anybody.\n\n{held}"
        + (f"\nCould not be had:\n{lacking}" if missing else "")
    )


def configuration(path: Path | None) -> str:
    """The configuration's file without secrets. Raises OSError, and ValueError for one in which they are not found."""
    if path is None:
        return "# no file: options and environment alone\n"
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError("it is not YAML, so that secrets in it would not be known") from error
    return yaml.safe_dump(redacted(content), sort_keys=False, allow_unicode=True)


def logs(settings: Settings) -> Iterator[tuple[str, Part]]:
    """The end of each log, by its name in the archive."""
    if settings.logs_directory.is_dir():
        for file in sorted(settings.logs_directory.glob("*.log")):
            yield f"logs/{file.name}", partial(_end_of, file)


def pci_functions(host_root: Path) -> str:
    """A line for each function of the classes that matter: address, class, vendor and device, driver."""
    return "".join(_pci_lines(host_root / "sys/bus/pci/devices"))


def variables(environment: Mapping[str, str]) -> str:
    """Devherd's own, without secrets."""
    own = {name: value for name, value in sorted(environment.items()) if name.startswith("DEVHERD_")}
    return "".join(f"{name}={value}\n" for name, value in redacted(own).items())


def _pci_lines(directory: Path) -> Iterator[str]:
    for function in sorted(directory.iterdir()):
        base = _text(function / "class").removeprefix("0x")[:2]
        if base in _CLASSES:
            driver = function / "driver"
            ids = f"{_text(function / 'vendor')}:{_text(function / 'device')}".replace("0x", "")
            name = os.readlink(driver).rpartition("/")[2] if driver.is_symlink() else "no driver"  # noqa: PTH115 - text
            yield f"{function.name} {_text(function / 'class')} {_CLASSES[base]} {ids} {name}\n"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return "?"


def _end_of(file: Path) -> bytes:
    with file.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
        return log.read()


def _add(archive: tarfile.TarFile, name: str, content: str | bytes) -> None:
    data = content.encode(errors="replace") if isinstance(content, str) else content
    entry = tarfile.TarInfo(f"devherd-support/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))


def as_json(value: Any) -> str:
    """For the parts that are JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
