"""The support archive: one file with what a maintainer asks for first, without secrets."""

import errno
import io
import json
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from devherd.errors import DevherdError
from devherd.settings import Settings

LEFT_OUT = "(left out)"
_SECRET = re.compile(r"pass(word|wd)?|secret|token|credential|api[-_]?key|private[-_]?key|auth", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=//)[^/\s]*@")
"""User and password of a URL."""
_OPTION = re.compile(r"(?P<name>-{0,2}[\w.-]+)=.*", re.DOTALL)
LOG_BYTES = 256 * 1024
"""Size of the end of each log that is packed."""
_CLASSES = {"02": "network", "03": "display", "0b": "processor", "12": "accelerator"}
"""PCI base classes of devices that devherd may serve."""
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
    """Write an archive of these parts, by name; returns the parts that are missing, each with the reason.

    The file appears complete and with mode 0600; a symbolic link is not followed. Raises OSError.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileExistsError(errno.EEXIST, "it exists and is not a file")
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


def _add(archive: tarfile.TarFile, name: str, content: str | bytes) -> None:
    data = content.encode(errors="replace") if isinstance(content, str) else content
    entry = tarfile.TarInfo(f"devherd-support/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))


def readme(missing: list[str]) -> str:
    """The archive's own description."""
    held = "".join(f"  {name:<14} {what}\n" for name, what in CONTENTS.items())
    lacking = "".join(f"  {one}\n" for one in missing)
    return (
        "Support archive of devherd.\n\nIt holds names of this host, of its devices and of pods that hold them.\n"
        f"Look through it before you give it to anybody.\n\n{held}" + (f"\nMissing:\n{lacking}" if missing else "")
    )


def redacted(value: Any, name: str = "") -> Any:
    """A copy without secrets: values of keys and options with such names, and logins of URLs.

    Only the program of a `command` is kept: devherd does not know what its arguments mean.
    """
    words = value.split() if isinstance(value, str) else value
    if name == "command" and isinstance(words, list) and words:
        return [redacted(words[0]), *(LEFT_OUT for _ in words[1:])]
    if isinstance(value, dict):
        return {key: redacted(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [LEFT_OUT if _follows_a_secrets_name(value, at) else redacted(one, name) for at, one in enumerate(value)]
    if _SECRET.search(name):
        return LEFT_OUT
    if isinstance(value, str) and (option := _OPTION.fullmatch(value)) and _SECRET.search(option["name"]):
        return f"{option['name']}={LEFT_OUT}"
    return _LOGIN.sub(f"{LEFT_OUT}@", value) if isinstance(value, str) else value


def _follows_a_secrets_name(words: Any, at: int) -> bool:
    before = words[at - 1] if at else ""
    return isinstance(before, str) and before.startswith("-") and "=" not in before and bool(_SECRET.search(before))


def configuration(path: Path | None) -> str:
    """The configuration file without secrets. Raises OSError, and ValueError if it is not YAML."""
    if path is None:
        return "# no file: options and environment alone\n"
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError("it is not YAML, so secrets in it cannot be found") from error
    return yaml.safe_dump(redacted(content), sort_keys=False, allow_unicode=True)


def logs(settings: Settings) -> Iterator[tuple[str, Part]]:
    """The end of each log, by its name in the archive."""
    if settings.logs_directory.is_dir():
        for file in sorted(settings.logs_directory.glob("*.log")):
            yield f"logs/{file.name}", partial(_end_of, file)


def pci_functions(host_root: Path) -> str:
    """A line for each function of the classes above: address, class, vendor and device, driver."""
    return "".join(_pci_lines(host_root / "sys/bus/pci/devices"))


def variables(environment: Mapping[str, str]) -> str:
    """The DEVHERD_ environment variables, without secrets."""
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


def as_json(value: Any) -> str:
    """The text of a part that is JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
