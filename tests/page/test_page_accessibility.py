"""The status page for readers with a screen reader, without a mouse or with weak eyes: axe finds nothing wrong."""

from itertools import pairwise
from pathlib import Path

import pytest
from not_tested import not_tested
from playwright.async_api import expect

from devherd.proto.health_pb2 import UNHEALTHY, WARN, Held, SourceState, Verdict
from devherd.proto.spool_pb2 import Child, Device, Edits, Node, Offer, Problem

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1280, "height": 900}}


@pytest.fixture(scope="session")
def axe():
    """The script that judges."""
    found = sorted(Path(__file__).parents[2].glob(".tools/axe-core@*/axe.min.js"))
    return found[-1].read_text() if found else not_tested("no axe-core in .tools; run tests/tools.sh")


@pytest.fixture
def everything(instance):
    """An instance that has something to say in every part of the page."""
    held = Held(source="kernel-log", reason="xid", action=UNHEALTHY, detail="Xid 79", file="/dev/kmsg", count=2)
    warned = Held(source="link", reason="link-degraded", action=WARN, detail="x8", only_warned="it was so at first")
    over = Held(source="kernel-log", reason="pci-aer", is_over=True, count=1)
    lost = Device(
        id="GPU-1",
        vendor="nvidia",
        card="c",
        reasons=["xid"],
        warnings=["link-degraded"],
        numa_nodes=[0],
        edits=Edits(nodes=[Node(host_path="/dev/nvidia0")]),
        attributes={"model": "NVIDIA H200", "pci_address": "0000:3b:00.0"},
    )
    sibling = Device(id="MIG-1", vendor="nvidia", card="c", replicas=4)
    slow = Device(id="GPU-2", vendor="nvidia", warnings=["link-degraded"])
    instance.put(Offer(name="nvidia.com/gpu", vendor="nvidia", devices=[lost, sibling, slow]))
    instance.put_state("nvidia.com/gpu", registered=True, registered_timestamp_seconds=1_000_000_000)
    instance.put(Offer(name="rdma/hca", vendor="rdma", devices=[Device(id="mlx5_0")]))
    instance.put_scan(Problem(vendor="nvidia", path="/sys/x", error="no such thing", device="GPU-3"))
    verdict = Verdict(vendor="nvidia", card="c", device="GPU-1", frozen="asleep", held=[held, warned, over])
    instance.put_verdict(verdict, SourceState(source="nvml", failed="no library"))
    instance.start()
    instance.put_children(
        Child(name="scanner", state="RUNNING", pid=1, started_timestamp_seconds=1_000_000_000),
        Child(name="resource:nvidia.com_gpu", state="RUNNING", pid=2, restarts={"signal": 2}, last_exit="signal 9"),
        Child(name="resource:rdma_hca", state="STOPPED", last_exit="exit status 0"),
    )
    return instance


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
async def test_axe_finds_nothing_wrong(everything, window, axe, scheme, size):
    """With everything unfolded, in both schemes and on both sizes."""
    page = await window(everything.url, viewport=SIZES[size], color_scheme=scheme, bypass_csp=True)
    await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    await page.add_script_tag(content=axe)
    outcome = await page.evaluate("axe.run()")
    assert len(outcome["passes"]) > 20
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in outcome["violations"]] == []


async def test_a_screen_reader_finds_its_way(everything, window):
    """Landmarks, headings in order, tables with captions and row headers, one place that says what changes."""
    page = await window(everything.url)
    for role in ("banner", "main", "contentinfo", "search"):
        await expect(page.get_by_role(role)).to_have_count(1)
    levels = [int(await each.evaluate("each => each.tagName[1]")) for each in await page.get_by_role("heading").all()]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for caption in (
        "What the last scan could not do",
        "Health sources that cannot check devices",
        "Processes of this instance",
    ):
        await expect(page.get_by_role("table", name=caption)).to_have_count(1)
    await expect(page.get_by_role("rowheader", name="resource:rdma_hca")).to_have_count(1)
    await expect(page.get_by_role("status")).to_have_text(
        ["live", "Unhealthy: 1 of 2 resources not registered, 1 of 7 devices unhealthy"]
    )


async def test_nothing_is_said_by_colour_alone(everything, window):
    """A device's health and a resource's registration are words."""
    page = await window(everything.url)
    await expect(page.locator("[id='nvidia.com/gpu/GPU-1'] summary").first).to_contain_text(
        "Unhealthy: xid; warning: link-degraded"
    )
    await expect(page.locator("[id='rdma/hca'] summary").first).to_contain_text(
        "not registered: stopped by an operator; `devherd ctl start resource:rdma_hca`"
    )
