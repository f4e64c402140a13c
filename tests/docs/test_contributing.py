"""CONTRIBUTING.md shows the way through the code that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PACKAGES = {file.parent.relative_to(ROOT) for file in (ROOT / "python" / "devherd").glob("*/__init__.py")}


def test_every_package_is_on_the_map():
    """With a word on what it is."""
    assert [str(package) for package in sorted(PACKAGES) if f"{package}/" not in TEXT] == []


def test_what_the_map_names_is_there():
    """Files and folders, but those that a NAME stands in."""
    named = re.findall(
        r"(?<![\w/<>-])(?:rust/src|rust/tests|python|proto|tests|docs|deploy|benches)/[\w./-]*\w/?", TEXT
    )
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists() and "NAME" not in path] == []


def test_every_make_target_that_it_names_exists():
    """And those that `make help` lists are named, but those that every project has."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert named - targets == set()
    assert targets - named == {"all", "help", "tools", "clean"}
