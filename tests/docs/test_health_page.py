"""docs/health.md names every source and every reason."""

import tomllib
from pathlib import Path

from devherd.reasons.registry import MEANINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "health.md"


def test_every_source_and_every_reason_is_on_the_page():
    """With what the source looks at."""
    known = tomllib.loads((ROOT / "docs" / "generate" / "health.toml").read_text())["looks_at"]
    page = PAGE.read_text()
    assert {source for source, _ in MEANINGS} - known.keys() == set()
    assert [reason for _, reason in MEANINGS if f"\n* `{reason}`: **" not in page] == []
