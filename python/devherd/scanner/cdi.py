"""The directory of CDI specs: a spec stands before a device that needs it is advertised, and for as long as a pod may.

Allocate does no I/O, and runtimes look a pod's CDI names up again whenever one of its containers starts. So a name
goes only when its device has been gone for so long that it is forgotten; a name that the configuration no longer gives
stays. At start, what an earlier instance left is taken over, but for names whose device nodes are no more: no container
could start with them. The rest goes with the next boot, which empties the directory.

Files are recognised as ours by a list beside them, of each file's digest: what another program has written, or written
over, is never removed. Only a leftover of the vendor's own plugin is replaced, where it has the very name we use.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from devherd.proto import spool_pb2
from devherd.scanner import cdi_spec
from devherd.scanner.file_identity import Identity, identity_of
from devherd.scanner.resources import natural_key

UNWRITABLE = "cdi-unwritable"
OWN_FILES = ".devherd"
"""Names the files of ours; hidden and without an extension of specs, so runtimes do not read it."""


class CdiDirectory:
    """The specs of ours in one directory. `host_root` is where the device nodes that specs name are found."""

    def __init__(self, directory: Path, host_root: Path) -> None:
        self._directory = directory
        self._own = _read_own(directory)
        self._edits: dict[str, str] = _usable(self._read_left_behind(), host_root)
        self._texts: dict[str, str] = {}
        self._left: dict[str, tuple[Identity, str]] = {}
        self.want([], [])

    def want(self, present: Iterable[spool_pb2.Device], remembered: Iterable[spool_pb2.Device]) -> None:
        """What the specs are to say; of names that several devices bring, the first one's edits count."""
        wanted: dict[str, str] = {}
        for device in present:
            _add(wanted, device)
        names = frozenset(wanted)
        for device in remembered:
            _add(wanted, device)
        self._edits = self._edits | wanted
        by_file: dict[str, dict[str, str]] = {}
        for name in sorted(self._edits, key=natural_key):
            by_file.setdefault(cdi_spec.file_name(name), {})[name] = self._edits[name]
        texts = {file: cdi_spec.spec_text(edits, names & edits.keys()) for file, edits in by_file.items()}
        self._texts = {file: text for file, text in texts.items() if text is not None}

    def withdraw(self, device: spool_pb2.Device) -> None:
        """Let go of the names of a device that is forgotten; those that others want as well come back with `want`."""
        for name in {*device.cdi_devices, *device.cdi_edits}:
            self._edits.pop(name, None)

    def publish(self) -> dict[str, OSError]:
        """Make the directory say what is wanted; for each name that it cannot say, why."""
        failed = {file: error for file, text in self._texts.items() if (error := self._put(file, text)) is not None}
        for file in self._own.keys() - self._texts.keys():
            self._remove(file)
        return {name: failed[file] for name in self._edits if (file := cdi_spec.file_name(name)) in failed}

    def _put(self, file: str, text: str) -> OSError | None:
        path = self._directory / file
        if self._stands(file, text):
            return None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._note_own({**self._own, file: _digest(text)})
            _replace(path, text)
        except OSError as error:
            return error
        self._note_left(file, text)
        return None

    def _stands(self, file: str, text: str) -> bool:
        identity = identity_of(self._directory / file)
        if identity is not None and self._left.get(file) == (identity, text):
            return True
        if identity is None or _read(self._directory / file) != text or self._own.get(file) != _digest(text):
            return False
        self._note_left(file, text)
        return True

    def _remove(self, file: str) -> None:
        text = _read(self._directory / file)
        try:
            if text is not None and _digest(text) == self._own[file]:
                (self._directory / file).unlink(missing_ok=True)
            self._note_own({name: digest for name, digest in self._own.items() if name != file})
        except OSError:
            return  # a directory that is read-only for the moment: tried again with the next publication

    def _note_left(self, file: str, text: str) -> None:
        identity = identity_of(self._directory / file)
        if identity is not None:
            self._left[file] = identity, text

    def _note_own(self, own: dict[str, str]) -> None:
        if own == self._own:
            return
        if own:
            _replace(self._directory / OWN_FILES, json.dumps(own, indent=2) + "\n")
        else:
            (self._directory / OWN_FILES).unlink(missing_ok=True)
        self._own = own

    def _read_left_behind(self) -> dict[str, str]:
        edits: dict[str, str] = {}
        for file, digest in self._own.items():
            text = _read(self._directory / file)
            if text is not None and _digest(text) == digest:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # another version's way of writing
                    edits |= cdi_spec.read(text)
        return edits


def _add(wanted: dict[str, str], device: spool_pb2.Device) -> None:
    for name, edits in device.cdi_edits.items():
        if cdi_spec.is_legal(name):
            wanted.setdefault(name, edits)


def _usable(edits: dict[str, str], host_root: Path) -> dict[str, str]:
    """Those whose device nodes all exist."""
    return {
        name: text
        for name, text in edits.items()
        if all((host_root / node.lstrip("/")).exists() for node in cdi_spec.host_nodes(text))
    }


def _read_own(directory: Path) -> dict[str, str]:
    try:
        own = json.loads((directory / OWN_FILES).read_text())
    except (OSError, ValueError):
        return {}  # none, or none that can be told: then nothing here is ours
    return {str(file): str(digest) for file, digest in own.items()} if isinstance(own, dict) else {}


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")  # no extension of specs: runtimes do not read it
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.rename(path)
