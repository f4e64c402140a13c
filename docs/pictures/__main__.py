"""Takes the pictures of the status page that the docs show, of a simulated node: `make pictures`.

Usage: python docs/pictures [FOLDER]. Needs the browser that tests/tools.sh fetches.
"""

import asyncio
import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Route, async_playwright

from devherd_sim.node import faults
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

HERE = Path(__file__).parent
BROWSER = shutil.which("chromium-headless-shell", path=str(HERE.parents[1] / ".tools" / "bin"))
NODE = NodeSpec(
    nvidia=NvidiaSpec(gpus=8, numa_nodes=2, gpus_a_switch=2, nvml=True, nvlink="switch"),
    fpga=[FpgaSpec(driver="opae", cards=2, numa_nodes=2, vfs=6, afu_ids=[AFU_IDS[0]])],
    rdma=[RdmaSpec(cards=2, numa_nodes=2)],
    devices=[DeviceSpec(path="/dev/kvm", number="10:232")],
)
CONFIG = {
    "resources": [{"match": {"afu_id": AFU_IDS[0]}, "name": "example.com/compression"}],
    "generic": [{"name": "devic.es/kvm", "groups": [{"count": 10, "paths": [{"path": "/dev/kvm"}]}]}],
}
PICTURES = {
    "page-desktop-light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "page-phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True},
}


async def _set_the_scene(testbed: Testbed) -> None:
    """Pods that train and compress, a GPU that has fallen off the bus, and one that has left its slot."""
    kubelet, node = testbed.kubelet, testbed.node
    await kubelet.until_allocatable("nvidia.com/gpu", 8, within=60)
    await kubelet.until_allocatable("example.com/compression", 12, within=60)
    await kubelet.until_allocatable("rdma/hca", 2, within=60)
    await kubelet.allocate("nvidia.com/gpu", 4, pod="train-0", namespace="research")
    await kubelet.allocate("example.com/compression", 5, pod="archive-2", namespace="storage")
    faults.inject(node, "xid", node.nvidia.addresses()[6])
    await kubelet.until_allocatable("nvidia.com/gpu", 7, within=60)
    faults.inject(node, "remove", node.nvidia.addresses()[3])
    await kubelet.until_allocatable("nvidia.com/gpu", 6, within=60)


async def _as_on_a_host(testbed: Testbed, route: Route) -> None:
    """The page with the paths of a host in place of those of this run's directory."""
    answer = await route.fetch()
    text = await answer.text()
    for here, there in (("config.yaml", "/etc/devherd/config.yaml"), ("kubelet", "/var/lib/kubelet"), ("node", "")):
        text = text.replace(str(testbed.directory / here), there)
    headers = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
    await route.fulfill(status=answer.status, headers=headers, body=text)


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
                await page.route(lambda url: url.endswith("/"), functools.partial(_as_on_a_host, testbed))
                await page.goto(f"http://{testbed.settings.listen}/")
                await page.screenshot(path=folder / f"{name}.png")
            await browser.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
