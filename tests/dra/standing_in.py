"""devherd whose claims are prepared by a stand-in: it needs no API server, and does what a claim's name asks for.

    gpu-0            is prepared: the device of this name
    slow-…           after half a second
    refused, broken  is not: with an error for users, by a defect

Usage: `standing_in.py WAITS COMMAND OPTIONS…`; WAITS is JSON, as for `hurried.py`.
"""

import asyncio
import json
import sys
from pathlib import Path

from devherd.dra.claim import ClaimError
from devherd.dra.preparation import PreparedAnswer

sys.path.insert(0, str(Path(__file__).parents[1]))


class StandIn:
    """In place of Preparation."""

    def __init__(self, settings, config, node, pools):
        self.node = node
        self.called = []
        self.lets_go = asyncio.Event()

    def restore(self):
        """Nothing is left of before."""

    def drivers(self):
        """None has prepared anything."""
        return set()

    def close(self):
        """Nothing is open."""

    async def prepare(self, driver, claim):
        """As its name asks for."""
        self.called.append(("prepare", driver, claim.uid))
        if claim.name == "endless":
            await self.lets_go.wait()
        if claim.name.startswith("slow"):
            await asyncio.sleep(0.5)
        if claim.name == "refused":
            raise ClaimError("example: the claim is refused — as it asks for — ask for another")
        if claim.name == "broken":
            raise RuntimeError("as ordered")
        device = claim.name.removeprefix("slow-")
        return [PreparedAnswer(("main",), self.node, device, (f"{driver}/device={device}",), claim.namespace)]

    async def unprepare(self, driver, uid):
        """Fails for one uid."""
        self.called.append(("unprepare", driver, uid))
        if uid == "refused":
            raise ClaimError("example: it is still in use")


def command(**waits):
    """The command of a testbed."""
    return sys.executable, __file__, json.dumps(waits)


if __name__ == "__main__":
    import hurried

    from devherd.dra import health, main

    health.SEND_SECONDS = 3600.0  # nothing but a change makes it come
    main.Preparation = StandIn
    sys.exit(hurried.main(sys.argv[2:], **json.loads(sys.argv[1])))
