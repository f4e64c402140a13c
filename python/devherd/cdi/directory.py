"""The directory of CDI specs: a spec is written before its device is advertised, and kept while a pod may need it.

Allocate does no I/O, and runtimes look a pod's CDI names up again whenever one of its containers starts. So a name is
removed only when its device has been gone long enough to be forgotten; a name that the configuration no longer gives is
kept. At start the specs of an earlier instance are taken over, except names whose device nodes no longer exist: no
container could start with them. A reboot empties the directory.

devherd recognises its files by a list of digests beside them: a file that another program has written or overwritten is
never removed. Only a leftover of the vendor's own plugin is replaced, if it has the same file name.
"""

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from devherd import spool
from devherd._native import NaturalKey
from devherd.cdi import spec
from devherd.spool.identity import Identity, identity_of

Brought = Mapping[str, spec.ContainerEdits]
"""Edits by CDI name: the device's own, those of its kind, and those of what comes with it."""

_READABLE_BY_ALL = 0o644
OWN_FILES = ".devherd"
"""The list of devherd's files; hidden and without an extension of specs, so runtimes do not read it."""


class CdiDirectory:
    """devherd's specs in one directory. `host_root` is where the device nodes that specs name are found."""

    def __init__(self, directory: Path, host_root: Path) -> None:
        self._directory = directory
        self._own = _read_own(directory)
        self._edits: dict[str, spec.ContainerEdits] = _usable(self._read_left_behind(), host_root)
        self._texts: dict[str, str] = {}
        self._left: dict[str, tuple[Identity, str]] = {}
        self.want([], [])

    def want(self, present: Iterable[Brought], remembered: Iterable[Brought]) -> None:
        """Set the wanted content of the specs, from the edits of each device by name.

        If several devices have edits for one name, the first one's are used.
        """
        wanted: dict[str, spec.ContainerEdits] = {}
        for edits in present:
            _add(wanted, edits)
        names = frozenset(wanted)
        for edits in remembered:
            _add(wanted, edits)
        self._edits = self._edits | wanted
        by_file: dict[str, dict[str, spec.ContainerEdits]] = {}
        for name in sorted(self._edits, key=NaturalKey):
            by_file.setdefault(spec.file_name(name), {})[name] = self._edits[name]
        texts = {file: spec.spec_text(edits, names & edits.keys()) for file, edits in by_file.items()}
        self._texts = {file: text for file, text in texts.items() if text is not None}

    def withdraw(self, names: Collection[str]) -> None:
        """Drop the names of a forgotten device; names that other devices use as well come back with `want`."""
        for name in names:
            self._edits.pop(name, None)

    def publish(self) -> dict[str, OSError]:
        """Write the wanted content; returns the reason for each name that could not be written."""
        failed = {file: error for file, text in self._texts.items() if (error := self._put(file, text)) is not None}
        for file in self._own.keys() - self._texts.keys():
            self._remove(file)
        return {name: failed[file] for name in self._edits if (file := spec.file_name(name)) in failed}

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

    def _read_left_behind(self) -> dict[str, spec.ContainerEdits]:
        edits: dict[str, spec.ContainerEdits] = {}
        for file, digest in self._own.items():
            text = _read(self._directory / file)
            if text is not None and _digest(text) == digest:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # another version's way of writing
                    edits |= spec.read(text)
        return edits


def _add(wanted: dict[str, spec.ContainerEdits], brought: Brought) -> None:
    for name, edits in brought.items():
        if spec.is_legal(name):
            wanted.setdefault(name, edits)


def _usable(edits: dict[str, spec.ContainerEdits], host_root: Path) -> dict[str, spec.ContainerEdits]:
    """Those whose device nodes all exist."""
    return {
        name: brought
        for name, brought in edits.items()
        if all((host_root / node.lstrip("/")).exists() for node in spec.host_nodes(brought))
    }


def _read_own(directory: Path) -> dict[str, str]:
    try:
        own = json.loads((directory / OWN_FILES).read_text())
    except (OSError, ValueError):
        return {}  # missing or unreadable: then no file here is devherd's
    return {str(file): str(digest) for file, digest in own.items()} if isinstance(own, dict) else {}


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    spool.replace(path, text.encode(), _READABLE_BY_ALL)  # its temporary name is no spec's: runtimes do not read it
