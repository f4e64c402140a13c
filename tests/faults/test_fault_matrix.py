"""The other rows of the fault matrix, a few times each; `make soak` plays all of them for long."""

from pathlib import Path

import pytest
from all_rows import ROWS, devherd_heals_after
from test_ten_faults import TEN

TABLE = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", [name for name in ROWS if name not in TEN])
async def test_devherd_heals_after(name):
    """All is registered with the right lists, pods keep their devices, nobody else is disturbed, nothing is left."""
    await devherd_heals_after(name)


def test_the_table_of_faults_has_every_row():
    """What is injected and what must hold, as people read it."""
    table = TABLE.read_text()

    missing = [row.name for row in ROWS.values() if f"| {row.name} | {row.injected} | {row.holds} |" not in table]

    assert not missing
