"""docs/health.md says what devherd does."""

import subprocess
import sys
import tomllib
from pathlib import Path

from devherd.health.registry import MEANINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "health.md"


def test_the_page_is_what_the_registry_makes():
    """`make docs-health` makes it."""
    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "health" / "page.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_source_and_every_reason_is_on_the_page():
    """With what the source looks at."""
    known = tomllib.loads((ROOT / "docs" / "health" / "words.toml").read_text())["source"]
    page = PAGE.read_text()
    assert {source for source, _ in MEANINGS} - known.keys() == set()
    assert [reason for _, reason in MEANINGS if f"| `{reason}` |" not in page] == []
