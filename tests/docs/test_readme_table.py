"""The README's table of what is served is complete."""

import re
from pathlib import Path

from devherd._native import vendors

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_every_vendor_is_listed():
    """Under the title of its row in the vendor table, and nothing else is."""
    table = README.partition("## What it serves")[2].partition("## ")[0]
    _heading, *listed = re.findall(r"^\| ([^|,]+?)(?:,[^|]*)? \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(row.title for row in vendors())
