"""The rooms of the Rust tree: no circle between them, no file that is too long, no file name used twice.

A room is the first part of a path below `rust/src`: `host/`, `device.rs`. Towards each other the folders in `vendors/`
are rooms as well. Files of one room may use each other. `rust/src/lib.rs` lists the rooms.
"""

import re
from collections import Counter, defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "rust" / "src"

LONGEST = 600
"""Lines of a file, its tests included."""

SHARED_NAMES = {"mod.rs", "tests.rs"}

COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'""")
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+")
LIST_ITEM = re.compile(r"(?:[^,{}]|\{(?:[^{}]|\{[^{}]*\})*\})+")


def module_of(path):
    """`("host",)` of `host/mod.rs` and `("host", "mounts")` of `host/mounts.rs`; `()` of `lib.rs`."""
    parts = path.with_suffix("").parts
    if parts == ("lib",):
        return ()
    return parts[:-1] if parts[-1] == "mod" else parts


def leaves(tree, before=()):
    """The paths of a `use`: `a::b` and `a::c` of `a::{b, c as d}`."""
    head, brace, inner = tree.strip().partition("{")
    if not brace:
        yield (*before, *head.split(" as ")[0].strip().split("::"))
        return
    before = (*before, *(part for part in head.strip().split("::") if part))
    for item in LIST_ITEM.findall(inner.rstrip().removesuffix("}")):
        if item.strip():
            yield from leaves(item, before)


def paths_in(text):
    """What a file names: by `use`, or by a path that begins with `crate`, `super` or `self`."""
    code = COMMENT_OR_TEXT.sub('""', text)
    for tree in USE.findall(code):
        yield from leaves(tree)
    for path in PATH.findall(code):
        yield tuple(path.split("::"))


def resolved(path, user, modules):
    """The module that a path leads to or into; `()` for a path that leads out of the crate."""
    place = user
    if path[0] == "crate":
        place, path = (), path[1:]
    elif path[0] in {"self", "super"}:
        while path and path[0] in {"self", "super"}:
            place, path = (place[:-1] if path[0] == "super" else place), path[1:]
    elif (*place, path[0]) not in modules:
        return ()
    whole = (*place, *path)
    return next((whole[:end] for end in range(len(whole), 0, -1) if whole[:end] in modules), ())


def ties(folder):
    """Each file of a source tree with each other file that it uses."""
    files = {module_of(path.relative_to(folder)): path for path in sorted(folder.rglob("*.rs"))}
    for user, path in files.items():
        used = {resolved(one, user, files) for one in paths_in(path.read_text())} - {(), user}
        yield from ((path.relative_to(folder), files[one].relative_to(folder)) for one in sorted(used))


def room(file):
    """The first part of a path below the source tree; none of `lib.rs`."""
    return "" if file.name == "lib.rs" else file.parts[0].removesuffix(".rs")


def vendor(file):
    """The folder of a vendor; none of a file that is in no such folder."""
    return file.parts[1] if file.parts[0] == "vendors" and len(file.parts) > 2 else ""


def circle(uses):
    """Rooms of which each uses the next, and the last one the first; empty if there are none."""
    done = set()

    def search(way):
        for following in sorted(uses.get(way[-1], ())):
            if following in way:
                return way[way.index(following) :]
            if following not in done and (found := search([*way, following])):
                return found
        done.add(way[-1])
        return []

    return next((found for start in sorted(uses) if start not in done and (found := search([start]))), [])


def circle_of_files(folder, room_of):
    """The ties of a circle between rooms, as text; empty if there is no circle."""
    between = defaultdict(list)
    for user, used in ties(folder):
        if room_of(user) and room_of(used) and room_of(user) != room_of(used):
            between[room_of(user), room_of(used)].append(f"{user} uses {used}")
    uses = defaultdict(set)
    for user, used in between:
        uses[user].add(used)
    rooms = circle(uses)
    return [tie for pair in zip(rooms, [*rooms[1:], *rooms[:1]], strict=True) for tie in between[pair]]


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_no_circle_between_rooms():
    """What a room uses does not use that room in turn, be it through others."""
    found = circle_of_files(SOURCES, room)
    assert not found, "a circle between rooms:\n" + "\n".join(found)


def test_no_circle_between_vendors():
    """Vendors do not use each other in a circle."""
    found = circle_of_files(SOURCES, vendor)
    assert not found, "a circle between vendors:\n" + "\n".join(found)


def test_a_circle_is_reported_with_the_files_that_tie_it(tmp_path):
    """Each file of a circle is named with the one that it uses; files of one room may use each other."""
    tree = {
        "lib.rs": "mod bus;\nmod device;\nmod health;\n",
        "bus/mod.rs": "pub mod pci;\npub mod usb;\n",
        "bus/pci.rs": "use std::fmt;\n\nuse super::usb;\nuse crate::device::{\n    Device,\n    Fact as One,\n};\n",
        "bus/usb.rs": "use super::pci;\n",
        "device.rs": "// use crate::bus::pci;\nfn finding() -> crate::health::finding::Finding {}\n",
        "health/mod.rs": "mod card;\nmod finding;\n\nuse card::Card;\n",
        "health/finding.rs": "",
        "health/card.rs": "use crate::{bus::{self, pci::Function}, device::Device};\n",
    }
    assert circle_of_files(written(tmp_path, tree), room) == [
        "bus/pci.rs uses device.rs",
        "device.rs uses health/finding.rs",
        "health/card.rs uses bus/mod.rs",
        "health/card.rs uses bus/pci.rs",
    ]


def test_vendors_in_a_circle_are_reported(tmp_path):
    """A vendor's folder is a room of its own towards the other vendors, and not towards the files beside it."""
    tree = {
        "vendors/mod.rs": "mod amd;\nmod intel;\n\nuse amd::Amd;\n",
        "vendors/amd/mod.rs": "mod card;\n\nuse super::Vendor;\nuse super::intel::card;\n",
        "vendors/amd/card.rs": "",
        "vendors/intel/mod.rs": "mod card;\n",
        "vendors/intel/card.rs": "use crate::vendors::amd::card;\n",
    }
    folder = written(tmp_path, tree)
    assert circle_of_files(folder, room) == []
    assert circle_of_files(folder, vendor) == [
        "vendors/amd/mod.rs uses vendors/intel/card.rs",
        "vendors/intel/card.rs uses vendors/amd/card.rs",
    ]


def test_no_file_is_longer_than_a_reader_follows():
    """A file above the limit is cut by subject, or its tests go to `tests.rs` beside it."""
    lengths = {path.relative_to(SOURCES): len(path.read_text().splitlines()) for path in SOURCES.rglob("*.rs")}
    too_long = {str(path): lines for path, lines in sorted(lengths.items()) if lines > LONGEST}
    assert not too_long, f"files of more than {LONGEST} lines: {too_long}"


def test_a_file_name_is_used_once():
    """A reader who looks for a name finds one file; vendors have the same names for the same things."""
    files = [path.relative_to(SOURCES) for path in SOURCES.rglob("*.rs") if path.name not in SHARED_NAMES]
    used = Counter(path.name for path in files if not vendor(path))
    twice = sorted(str(path) for path in files if used[path.name] > 1)
    assert not twice, f"files of one name: {twice}"
