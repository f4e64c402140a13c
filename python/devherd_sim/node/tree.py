"""Writes host trees to disk and reads them.

A written tree has a mark by which commands recognise it (devherd.config.resolved).
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from devherd.config.resolved import MARK, is_simulated
from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Directory, Entry, Fifo, File, Symlink
from devherd_sim.node.text import parse, render

__all__ = ["MARK", "is_simulated", "parse", "put", "read_tree", "remove", "render", "rewrite", "write_tree"]


def write_tree(tree: str | Iterable[Entry], root: Path) -> None:
    """Write a tree, as text or as entries, below `root` and mark it; other existing entries stay.

    Raises UsageError for a malformed line and for an entry outside `root`, OSError when writing fails.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / MARK).touch()
    made: set[str] = set()
    for entry in parse(tree) if isinstance(tree, str) else tree:
        put(entry, root, made)


def put(entry: Entry, root: Path, made: set[str] | None = None) -> None:
    """Write one entry and its parents. An existing file keeps its inode, like an attribute of sysfs.

    `made` caches the directories that are known to exist inside `root`.
    """
    made = set() if made is None else made
    place = root / entry.path
    try:
        _make_directory(entry.path.rpartition("/")[0], root, made)
        try:
            _make(entry, place)
        except FileExistsError:
            if isinstance(entry, Symlink) and place.is_symlink():
                made.clear()  # some may be reached by the replaced link
            _replace(entry, place)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UsageError(f"{entry.path} of the tree", str(error.strerror), "make each path of one kind only") from error


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file's content in its inode; a reader never sees the file empty in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def remove(place: Path, root: Path) -> None:
    """Remove a path, and the parent directories that become empty, as the kernel leaves none."""
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    else:
        place.unlink()
    for parent in place.parents:
        if parent == root or any(parent.iterdir()):
            return
        parent.rmdir()


def read_tree(root: Path, place: Path | None = None, without: Collection[str] = ()) -> list[Entry]:
    """The entries of a tree, or of one directory or file of it, sorted by name; only empty directories are listed.

    `without`: paths below `root` that are not looked at.
    """
    place = place or root
    if place.is_dir():
        found = _walk(place, root, {str(root / path) for path in without})
    else:
        found = iter([_entry(place, str(place.relative_to(root)))])
    return [entry for entry in found if entry.path != MARK]


def _make_directory(path: str, root: Path, made: set[str]) -> None:
    """Make a directory and those above it, unless they exist. Raises UsageError when a link leads out of `root`."""
    if not path or path in made:
        return
    above, _, name = path.rpartition("/")
    _make_directory(above, root, made)
    place = root / path
    if path.startswith("/") or name == ".." or place.is_symlink():
        _refuse_outside(path, root)
    place.mkdir(exist_ok=True)
    made.add(path)


def _refuse_outside(path: str, root: Path) -> None:
    try:
        inside = (root / path).resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links; which error is raised depends on Python's version
        inside = False
    if not inside:
        raise UsageError(f"{path} of the tree", f"a link on its way leads out of {root}", "make that link relative")


def _replace(entry: Entry, place: Path) -> None:
    if isinstance(entry, File) and place.is_file() and not place.is_symlink():
        rewrite(place, entry.content)
    elif not (isinstance(entry, Directory) and place.is_dir()):
        place.unlink(missing_ok=True)
        _make(entry, place)


def _make(entry: Entry, place: Path) -> None:
    """Create an entry. Raises FileExistsError when the path exists."""
    match entry:
        case Directory():
            place.mkdir()
        case File():
            with place.open("xb", buffering=0) as file:
                file.write(entry.content)
        case Symlink():
            place.symlink_to(entry.target)
        case DeviceNode():
            _make_node(entry, place)
        case Fifo():
            os.mkfifo(place)


def _make_node(entry: DeviceNode, place: Path) -> None:
    kind = stat.S_IFCHR if entry.kind == "char" else stat.S_IFBLK
    try:
        os.mknod(place, kind | 0o660, os.makedev(entry.major, entry.minor))
    except PermissionError:
        place.touch(exist_ok=False)
        place.chmod(0o666)  # for all users: the group is the tree creator's


def _walk(directory: Path, root: Path, without: Collection[str]) -> Iterator[Entry]:
    with os.scandir(directory) as found:
        children = sorted((child for child in found if child.path not in without), key=lambda child: child.name)
    if not children and directory != root:
        yield Directory(str(directory.relative_to(root)))
    for child in children:
        path = Path(child.path)
        if child.is_dir(follow_symlinks=False):
            yield from _walk(path, root, without)
        elif not path.is_socket():  # sockets belong to servers on the node
            yield _entry(path, str(path.relative_to(root)))


def _entry(place: Path, path: str) -> Entry:
    status = place.lstat()
    kind = stat.S_IFMT(status.st_mode)
    number = os.major(status.st_rdev), os.minor(status.st_rdev)
    match kind:
        case stat.S_IFLNK:
            return Symlink(path, str(place.readlink()))
        case stat.S_IFCHR:
            return DeviceNode(path, "char", *number)
        case stat.S_IFBLK:
            return DeviceNode(path, "block", *number)
        case stat.S_IFIFO:
            return Fifo(path)
    return File(path, place.read_bytes())
