"""When each on the way of an alert knew of a fault: devherd's metric, Prometheus, the alert in it, its receiver."""

import asyncio
import statistics
import time
import urllib.request

_METRIC = "devherd_device_unhealthy_reason"


class Way:
    """Of one fault, from the moment at which this is made. Each step is looked for every 50 ms."""

    def __init__(self, testbed, monitoring):
        self._address = f"http://{testbed.settings.listen}/metrics?name[]={_METRIC}"
        self._monitoring = monitoring
        self._began = time.monotonic()
        self.times = {}
        """Seconds after the fault, by what had happened."""

    async def followed(self, alert, since):
        """The notification of the alert and its moment, when all steps are noted."""
        *_, notified = await asyncio.gather(
            self._noted("fault to devherd's metric", self._metric),
            self._noted("fault to the series in Prometheus", lambda: self._monitoring.query(_METRIC)),
            self._noted("fault to the alert firing", lambda: self._monitoring.fires(alert)),
            self._monitoring.notified(alert, "firing", since=since),
        )
        self.times["fault to the receiver"] = notified[0] - self._began
        return notified

    async def _noted(self, what, look):
        await self._monitoring.until(look, what)
        self.times[what] = time.monotonic() - self._began

    async def _metric(self):
        return f"{_METRIC}{{" in await asyncio.to_thread(self._page)

    def _page(self):
        with urllib.request.urlopen(self._address, timeout=30) as answer:
            return answer.read().decode()


def table(ways):
    """Of the seconds of several faults, a line for each step."""
    lines = [f"{len(ways)} faults; seconds: median (least to most)"]
    for step in ways[0]:
        seconds = [way[step] for way in ways]
        lines.append(f"  {step:<34} {statistics.median(seconds):5.2f} ({min(seconds):.2f} to {max(seconds):.2f})")
    return "\n".join(lines)
