"""Every row of the fault matrix: importing a part adds its rows."""

import child_faults  # noqa: F401
import host_faults  # noqa: F401
import kubelet_faults  # noqa: F401
import operator_faults  # noqa: F401
import source_faults  # noqa: F401
from matrix import ROWS, play
from not_tested import not_tested
from seeds import SEED

__all__ = ["ROWS", "devherd_heals_after"]


async def devherd_heals_after(name: str) -> None:
    """Play a row so often as `make test-all` does; fails with what the first attempt that did not heal has shown."""
    obstacle = ROWS[name].obstacle()
    if obstacle:
        not_tested(obstacle)
    figures = await play(ROWS[name], ROWS[name].short, SEED)
    assert not figures.failures, figures.failures[0]
