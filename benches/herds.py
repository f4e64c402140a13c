"""The herds that are measured, each beside an embedded kubelet, which lives in the bench's own process."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from devherd_sim.kubelet.events import Event, Kind
from devherd_sim.node.presets import preset
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

SIMULATED = [f"example.com/type-{number}" for number in range(14)]
TYPES = 16
"""The simulated ones and the two accelerator functions of the preset `fpga-8`."""

_SIXTEEN_TYPES = {"simulated": [{"name": name, "count": 4} for name in SIMULATED]}


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory with a path short enough for sockets; on tmpfs, where /run is, if there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    path = Path(tempfile.mkdtemp(prefix="dh", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.asynccontextmanager
async def small_testbed(
    spec: str | NodeSpec = "fpga-8", config: dict[str, Any] | None = None
) -> AsyncIterator[Testbed]:
    """A kubelet that runs and a herd that is yet to be started: by default one of 16 types."""
    with directory() as path:
        node = preset(spec) if isinstance(spec, str) else spec
        made = Testbed(path, node, _SIXTEEN_TYPES if config is None else config)
        await made.kubelet.start()
        try:
            yield made
        finally:
            await made.__aexit__(None, None, None)


async def all_types(testbed: Testbed, kind: Kind, since: int, types: int = TYPES) -> float:
    """When the last of all types had its first event of a kind since a mark, on the monotonic clock."""
    events = testbed.kubelet.events
    await events.until(lambda: len(_first(events.since(since, kind))) >= types, within=30, what=f"{types} times {kind}")
    return max(_first(events.since(since, kind)).values())


def _first(events: list[Event]) -> dict[str, float]:
    return {event.resource: event.at for event in reversed(events)}
