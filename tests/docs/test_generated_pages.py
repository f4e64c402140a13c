"""The pages of docs/ that come from the program say what it does."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_what_the_program_says():
    """`make docs-pages` makes them."""
    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
