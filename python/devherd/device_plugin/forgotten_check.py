"""Whether the kubelet still has our devices: it can lose them without notice.

Up to 1.36 the kubelet identifies plugins by resource name alone: when another plugin of the same resource has come and
gone, it drops our devices and leaves our stream open (kubernetes#121994). The exporter asks the kubelet once for all
children and writes the answer for each to `<run-dir>/allocatable/<key>`.
"""

import asyncio
import time
from pathlib import Path

from devherd import spool
from devherd.device_plugin.resource_file import ResourceFile
from devherd.proto import spool_pb2

MISSES = 2
"""In a row: after one, our list may still be on its way to the kubelet."""
LOOKS_A_PERIOD = 4
"""How often the file is read between two answers."""


async def until_forgotten(answers: Path, resource: ResourceFile, period_seconds: float) -> str:
    """Return why to register again, once the kubelet lists none of the healthy devices; never when the period is 0.

    Only answers to questions after this call count. Without an exporter, or if the kubelet does not answer (no
    PodResources API, no rights to its socket, too slow), nothing is concluded.
    """
    misses, last = 0, time.monotonic()
    while misses < MISSES:
        await asyncio.sleep(period_seconds / LOOKS_A_PERIOD if period_seconds else float("inf"))
        answer = spool.read_or_empty(answers, spool_pb2.Allocatable)
        if last < answer.asked_monotonic_seconds <= time.monotonic():
            last = answer.asked_monotonic_seconds
            healthy = resource.latest.healthy
            misses = misses + 1 if healthy and healthy.isdisjoint(answer.device_ids) else 0
    return "the kubelet has lost our devices, although the stream is still open"
