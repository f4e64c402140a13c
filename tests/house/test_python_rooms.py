"""The rooms of the Python tree: each stands on the floors below it, as CONTRIBUTING.md lists them; no file is too long.

A room is a package or module directly below `devherd`, and the package `devherd_sim`. Imports count wherever they are
written: inside a function and for type checkers alone, too.
"""

import ast
import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"

LONGEST = 600
"""Lines of a file."""

GENERATED = {"proto"}
"""Rooms that a program writes."""

BLOCK = re.compile(r"^```text floors\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def floors(text):
    """The number of each room's floor, from the top: a line of the block `floors` each."""
    lines = BLOCK.search(text)[1].splitlines()
    return {room: number for number, line in enumerate(lines) for room in line.split()}


def room(module):
    """`config` of `devherd.config.model`."""
    package, _, rest = module.partition(".")
    return package if package == "devherd_sim" else rest.partition(".")[0]


def ties(graph):
    """Each pair of rooms with the modules that tie them."""
    between = {}
    for module in sorted(graph.modules):
        for used in sorted(graph.find_modules_directly_imported_by(module)):
            pair = room(module), room(used)
            if all(pair) and pair[0] != pair[1]:
                between.setdefault(pair, []).append(f"{module} imports {used}")
    return between


def wrong_ties(between, floor_of):
    """The imports that do not lead to a lower floor; on the lowest, only those that make a circle."""
    lowest = max(floor_of.values())
    wrong = []
    for (user, used), imports in sorted(between.items()):
        if floor_of[user] == floor_of[used] == lowest:
            if reaches(between, used, user):
                wrong += imports
        elif floor_of[user] >= floor_of[used]:
            wrong += imports
    return wrong


def reaches(between, start, end):
    """Whether a room uses another one, be it through others."""
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        following = {used for user, used in between if user == here} - found
        found |= following
        todo += following
    return end in found


@pytest.fixture(scope="module")
def graph():
    """All imports of the tree."""
    return grimp.build_graph("devherd", "devherd_sim", cache_dir=None)


def test_every_room_stands_on_the_floors_below_it(graph):
    """An import leads down; so there is no circle between rooms, be it through others."""
    found = wrong_ties(ties(graph), floors((ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    assert not found, "imports that lead up:\n" + "\n".join(found)


def test_the_floors_have_every_room_once(graph):
    """No room is without a place, and none is listed that is not there."""
    rooms = sorted({room(module) for module in graph.modules} - {"", "__main__", "_native"})
    listed = BLOCK.search((ROOT / "CONTRIBUTING.md").read_text("utf-8"))[1].split()
    assert sorted(listed) == sorted([*rooms, "_native", "__main__"])


def test_an_import_that_leads_up_is_reported():
    """With the modules that it ties; sideways is up, but for the lowest floor, where a circle is wrong."""
    floor_of = floors("```text floors\ncli\nscanner exporter\ntext spool log\n```\n")
    assert floor_of == {"cli": 0, "scanner": 1, "exporter": 1, "text": 2, "spool": 2, "log": 2}
    between = {
        ("cli", "scanner"): ["cli.scan imports scanner.once"],
        ("scanner", "exporter"): ["scanner.loop imports exporter.main"],
        ("text", "cli"): ["text imports cli.tables"],
        ("spool", "text"): ["spool imports text"],
    }
    assert wrong_ties(between, floor_of) == ["scanner.loop imports exporter.main", "text imports cli.tables"]
    around = {("spool", "text"): ["a"], ("text", "log"): ["b"], ("log", "spool"): ["c"], ("cli", "log"): ["d"]}
    assert wrong_ties(around, floor_of) == ["c", "a", "b"]


def test_no_python_file_is_longer_than_a_subject():
    """A file of more than 600 lines is split where its subjects part."""
    files = [file for package in ("devherd", "devherd_sim") for file in (PYTHON / package).rglob("*.py")]
    written = [file for file in files if file.relative_to(PYTHON).parts[1] not in GENERATED]
    too_long = {
        str(file.relative_to(ROOT)): lines
        for file in written
        if not file.is_symlink() and (lines := len(file.read_text("utf-8").splitlines())) > LONGEST
    }
    assert len(written) > 100
    assert too_long == {}


def public_classes(file):
    """The names of the public classes at the top of a file."""
    classes = [one.name for one in ast.parse(file.read_text("utf-8")).body if isinstance(one, ast.ClassDef)]
    return [name for name in classes if not name.startswith("_")]


def test_a_public_class_name_is_used_once():
    """Who searches for a name finds one thing. The configuration in force has the names of its models."""
    files_of = {}
    for file in sorted(PYTHON.rglob("*.py")):
        place = file.relative_to(PYTHON)
        if not GENERATED.intersection(place.parts) and place.name != "sections.py":
            for name in public_classes(file):
                files_of.setdefault(name, []).append(str(place))
    assert {name: files for name, files in files_of.items() if len(files) > 1} == {}
