"""The status page of 8 and 4 096 devices: its size, its CPU time, and the time until a browser shows it."""

import asyncio
import gzip
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from herds import DEVICES, small_testbed
from measure import figure, headline, milliseconds, timing, use_byte_code
from playwright.async_api import async_playwright
from processes import cpu_seconds, own_bytes

from devherd_sim.testbed import Testbed

NAME = "example.com/gpu"
BROWSER = shutil.which(
    "chromium-headless-shell", path=str(Path(__file__).parents[1] / ".tools" / "bin")
) or shutil.which("chromium-headless-shell")
REPEATS = 5
POLLS = 200


def main() -> None:
    """Print the figures."""
    use_byte_code()
    for count in (8, DEVICES):
        asyncio.run(_of(count))


async def _of(count: int) -> None:
    headline(f"status page of {count} devices")
    config: dict[str, Any] = {"simulated": [{"name": NAME, "count": count, "numa_nodes": 2}]}
    async with small_testbed("generic", config) as herd:
        await herd.start_herd()
        await herd.kubelet.until_allocatable(NAME, count, within=60)
        exporter = (await herd.child("exporter")).pid
        await herd.until(herd.settings.served_file.exists, "it listens")
        before, began = own_bytes(exporter), cpu_seconds(exporter)
        packed, tag = await asyncio.to_thread(_ask, herd, {"Accept-Encoding": "gzip"})
        size, made = len(gzip.decompress(packed)), cpu_seconds(exporter) - began
        figure("document", f"{size / 1000:.0f} kB", "<= 300 kB", f"{len(packed) / 1000:.0f} kB sent")
        figure("CPU time of the first", milliseconds(made))
        began = cpu_seconds(exporter)
        for _ in range(POLLS):
            await asyncio.to_thread(_ask, herd, {"If-None-Match": tag})
        figure("CPU time of a poll that finds nothing new", milliseconds((cpu_seconds(exporter) - began) / POLLS))
        figure("memory that the exporter took for it", f"{(own_bytes(exporter) - before) / 1e6:.1f} MB")
        if BROWSER:
            paints = [await _first_paint(herd) for _ in range(REPEATS)]
            timing("first contentful paint", paints, "<= 1 s")


def _ask(herd: Testbed, headers: dict[str, str]) -> tuple[bytes, str]:
    request = urllib.request.Request(f"http://{herd.settings.listen}/", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read(), answer.headers["ETag"]
    except urllib.error.HTTPError as answer:
        if answer.code != 304:
            raise
        return b"", answer.headers["ETag"]


async def _first_paint(herd: Testbed) -> float:
    """Seconds from the request, in a browser with an empty cache."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(f"http://{herd.settings.listen}/")
        seconds = await page.evaluate(
            "new Promise(done => new PerformanceObserver(list => done(list.getEntries().at(-1).startTime / 1000))"
            ".observe({type: 'paint', buffered: true}))"
        )
        await browser.close()
    return float(seconds)


if __name__ == "__main__":
    main()
