"""Takes the pictures of the status page that the docs show, of a simulated node: `make pictures`.

Usage: python docs/pictures [FOLDER]. Needs the browser that tests/tools.sh fetches.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright

from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

HERE = Path(__file__).parent
BROWSER = shutil.which("chromium-headless-shell", path=str(HERE.parents[1] / ".tools" / "bin"))
NODE = NodeSpec(
    fpga=[FpgaSpec(cards=2, numa_nodes=2, afu_ids=[*AFU_IDS[:2]])],
    nvidia=NvidiaSpec(gpus=8, numa_nodes=2),
    amd=[AmdSpec(cards=4, numa_nodes=2)],
    rdma=[RdmaSpec(cards=2, numa_nodes=2)],
)
CONFIG = {
    "resources": [
        {"match": {"afu_id": AFU_IDS[0]}, "name": "example.com/compression"},
        {"match": {"afu_id": AFU_IDS[1]}, "name": "example.com/crypto"},
    ]
}
PICTURES = {
    "page-desktop-light": {"viewport": {"width": 1120, "height": 820}, "color_scheme": "light"},
    "page-phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True},
}


async def _set_the_scene(testbed: Testbed) -> None:
    """Two pods that train, a GPU that has fallen off the bus, a link that has become narrow."""
    kubelet, node = testbed.kubelet, testbed.node
    await kubelet.until_allocatable("nvidia.com/gpu", 8, within=60)
    await kubelet.until_allocatable("amd.com/gpu", 4, within=60)
    await kubelet.until_allocatable("example.com/compression", 1, within=60)
    await kubelet.allocate("nvidia.com/gpu", 4, pod="train-0", namespace="research")
    await kubelet.allocate("amd.com/gpu", 2, pod="render-7", namespace="studio")
    faults.inject(node, "xid", node.nvidia.addresses()[6])
    await kubelet.until_allocatable("nvidia.com/gpu", 7, within=60)
    faults.inject(node, "fpga-errors", "dfl-port.0")
    await kubelet.until_allocatable("example.com/compression", 0, within=60)


async def take(folder: Path) -> None:
    """Into this folder."""
    os.environ["NODE_NAME"] = "gpu-node-12"
    with tempfile.TemporaryDirectory(prefix="devherd-", dir="/tmp") as directory:
        async with Testbed(Path(directory), NODE, CONFIG) as testbed, async_playwright() as playwright:
            await _set_the_scene(testbed)
            browser = await playwright.chromium.launch(
                executable_path=BROWSER, args=["--no-sandbox", "--disable-lcd-text"]
            )
            for name, window in PICTURES.items():
                page = await browser.new_page(**window)
                await page.goto(f"http://{testbed.settings.listen}/")
                await page.screenshot(path=folder / f"{name}.png")
            await browser.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
