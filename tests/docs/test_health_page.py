"""docs/health.md names every source and every reason, with what to do."""

import re
import tomllib
from pathlib import Path

from devherd.reasons.registry import MEANINGS
from devherd.reasons.xids import XID

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "health.md").read_text()


def test_every_source_and_every_reason_is_on_the_page():
    """With what the source looks at."""
    known = tomllib.loads((ROOT / "docs" / "generate" / "health.toml").read_text())["looks_at"]
    assert {source for source, _ in MEANINGS} - known.keys() == set()
    assert [key for key in MEANINGS if f"\n* `{key[1]}` (`{key[0]}`)" not in PAGE] == []


def test_each_reason_says_what_to_do():
    """In its line, in that above it, or under a reason that it names."""
    said = set(re.findall(r"^\* `([a-z-]+)` \(.*\*\*Do:\*\* ", PAGE, re.MULTILINE))
    assert {reason for _, reason in MEANINGS} - said == {XID}
    assert set(re.findall(r"as for `([a-z-]+)`", PAGE)) <= said
