"""Every row of the fault matrix, a few times each; `make soak` plays them for long."""

import os
import secrets
from pathlib import Path

import pytest
from all_rows import ROWS
from matrix import play
from not_tested import not_tested

SEED = os.environ.get("DEVHERD_FAULTS_SEED") or secrets.token_hex(4)
TABLE = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", ROWS)
async def test_devherd_heals_after(name):
    """All is registered with the right lists, pods keep their devices, nobody else is disturbed, nothing is left."""
    obstacle = ROWS[name].obstacle()
    if obstacle:
        not_tested(obstacle)
    print(f"the same again: DEVHERD_FAULTS_SEED={SEED} .venv/bin/pytest -n 0 tests/faults -k {name.split()[0]}")

    figures = await play(ROWS[name], ROWS[name].short, SEED)

    assert not figures.failures, figures.failures[0]


def test_the_table_of_faults_has_every_row():
    """What is injected and what must hold, as people read it."""
    table = TABLE.read_text()

    missing = [row.name for row in ROWS.values() if f"| {row.name} | {row.injected} | {row.holds} |" not in table]

    assert not missing
