"""Ten rows of the fault matrix, of each kind at least one: what `make test` plays of it."""

import pytest
from all_rows import devherd_heals_after

TEN = (
    "device node removed and returned",
    "spool file torn",
    "disk full in the run directory",
    "child killed",
    "scanner killed",
    "exporter killed",
    "kubelet restarted quickly",
    "own socket removed",
    "sigterm during registration",
    "rolling update",
)


@pytest.mark.parametrize("name", TEN)
async def test_devherd_heals_after(name):
    """All is registered with the right lists, pods keep their devices, nobody else is disturbed, nothing is left."""
    await devherd_heals_after(name)
