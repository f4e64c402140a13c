"""Host trees as text that can be read and compared: one entry a line.

# a comment; blank lines are ignored
sys/class/fpga_region/                                  a directory
sys/a/vendor = 0x8086                                   a file holding the text and a newline
sys/a/vendor == 0x8086                                  the same without the newline
sys/a/uevent =                                          several lines: the indented block that follows
    DRIVER=dfl-pci
    PCI_CLASS=120000
sys/class/fpga_region/region0 -> ../../devices/…        a symbolic link
dev/dfl-port.0 char 244:0                               a device node, `char` or `block`
sys/a/huge binary 0xff*10000 0x00                       any bytes: hexadecimal, `*` repeats
sys/a/stuck fifo                                        a named pipe
"sys/a name" = x                                        a JSON string where a path or target holds blanks
"""

import json
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Directory, Entry, Fifo, File, Symlink

_INDENT = "    "
_PATH = re.compile(r'("(?:[^"\\]|\\.)*"|\S+)(.*)', re.DOTALL)
_NUMBER = re.compile(r"(\d+):(\d+)")
_BINARY = re.compile(r"0x((?:[0-9a-fA-F]{2})+)(?:\*(\d+))?")
_LONGEST = 64 << 20  # bytes of one file: a typing error must not fill the disk


def parse(text: str) -> list[Entry]:
    """The entries of a tree, in order. Raises UsageError with the number of a malformed line."""
    lines = text.split("\n")
    entries: list[Entry] = []
    number = 0
    while number < len(lines):
        line, number = lines[number], number + 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            block = _block(lines, number) if line.rstrip().endswith((" =", " ==")) else []
            entries.append(_parse_line(line.rstrip("\r"), block))
        except ValueError as error:
            raise UsageError(f"line {number} of the tree", f"{error}: `{line.strip()}`", _CURE) from error
        number += len(block)
    return entries


_CURE = "write `path/`, `path = text`, `path -> target`, `path char 244:0`, `path fifo` or `path binary 0xff*10`"


def render(entries: Iterable[Entry]) -> str:
    """The text of these entries, the inverse of `parse`."""
    return "".join(f"{_render_entry(entry)}\n" for entry in entries)


def _block(lines: list[str], start: int) -> list[str]:
    """The indented lines from `start` on, unindented, with the blank lines between them."""
    end = start
    for number in range(start, len(lines)):
        if lines[number].startswith(_INDENT) and lines[number].strip():
            end = number + 1
        elif lines[number].strip():
            break
    return [line.removeprefix(_INDENT) if line.strip() else "" for line in lines[start:end]]


def _parse_line(line: str, block: list[str]) -> Entry:
    if line[0].isspace():
        raise ValueError("indented, but below no `path =`")
    match = _PATH.fullmatch(line)
    if match is None:
        raise ValueError("no path")
    path, rest = _unquoted(match[1]), match[2]
    if path.endswith("/") and not rest.strip():
        return Directory(_checked(path.removesuffix("/")))
    kind, _, value = rest.lstrip().partition(" ")
    return _parse_kind(_checked(path), kind, value, block)


def _parse_kind(path: str, kind: str, value: str, block: list[str]) -> Entry:
    match kind:
        case "=" | "==":
            text = "\n".join(block) if block else value
            return File(path, (text + ("\n" if kind == "=" else "")).encode("utf-8", "surrogateescape"))
        case "->":
            return Symlink(path, _unquoted(value.strip()))
        case "char" | "block":
            return _device_node(path, kind, value.strip())
        case "binary":
            return File(path, _bytes(value.split()))
        case "fifo":
            return Fifo(path)
    raise ValueError(f"`{kind}` is not a kind of entry" if kind else "what is it?")


def _checked(path: str) -> str:
    if not path or path.startswith("/") or {".", ".."} & set(path.split("/")) or str(PurePosixPath(path)) != path:
        raise ValueError("a path is relative to the host root, without `.`, `..`, `//` or `/` at its end")
    if "\0" in path:
        raise ValueError("a path holds no zero byte")
    return path


def _unquoted(word: str) -> str:
    if not word.startswith('"'):
        if not word:
            raise ValueError("empty")
        return word
    try:
        return str(json.loads(word))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON string ({error.msg})") from error


def _device_node(path: str, kind: Literal["char", "block"], number: str) -> DeviceNode:
    match = _NUMBER.fullmatch(number)
    if match is None:
        raise ValueError("a device node has a number such as 244:0")
    return DeviceNode(path, kind, int(match[1]), int(match[2]))


def _bytes(pieces: list[str]) -> bytes:
    content = bytearray()
    for piece in pieces:
        match = _BINARY.fullmatch(piece)
        if match is None:
            raise ValueError("bytes are written 0xff or 0xff*100")
        content_of_piece, times = bytes.fromhex(match[1]), int(match[2] or 1)
        if len(content) + len(content_of_piece) * times > _LONGEST:
            raise ValueError(f"more than {_LONGEST} bytes")
        content += content_of_piece * times
    return bytes(content)


def _render_entry(entry: Entry) -> str:
    path = _quoted(entry.path)
    match entry:
        case Directory():
            return _quoted(f"{entry.path}/")
        case File():
            return _render_file(path, entry.content)
        case Symlink():
            return f"{path} -> {_quoted(entry.target)}"
        case DeviceNode():
            return f"{path} {entry.kind} {entry.major}:{entry.minor}"
        case Fifo():
            return f"{path} fifo"


def _quoted(text: str) -> str:
    plain = text.isprintable() and " " not in text and not text.startswith(('"', "#"))
    return text if plain and text else json.dumps(text)


def _render_file(path: str, content: bytes) -> str:
    text = content.decode("utf-8", "surrogateescape")
    sign, body = ("=", text[:-1]) if text.endswith("\n") else ("==", text)
    lines = body.split("\n")
    if not all(_survives(line) for line in lines):
        return f"{path} binary {_hexadecimal(content)}".rstrip()
    if len(lines) == 1:
        return f"{path} {sign} {body}".rstrip()
    if not lines[0] or not lines[-1]:
        return f"{path} binary {_hexadecimal(content)}"
    return "\n".join([f"{path} {sign}", *(f"{_INDENT}{line}" if line else "" for line in lines)])


def _survives(line: str) -> bool:
    """True if a line is printable and stays the same when an editor trims it."""
    return line.isprintable() and line == line.strip()


def _hexadecimal(content: bytes) -> str:
    if len(content) > 1 and len(set(content)) == 1:
        return f"0x{content[:1].hex()}*{len(content)}"
    return f"0x{content.hex()}" if content else ""
