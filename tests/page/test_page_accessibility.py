"""The status page for readers with a screen reader, without a mouse or with weak eyes: axe finds nothing wrong."""

from itertools import pairwise
from pathlib import Path

import pytest
from drawn_node import inventory, pairs_below_switches
from not_tested import not_tested
from playwright.async_api import expect

from devherd import spool
from devherd.proto.health_pb2 import UNHEALTHY, WARN, Held, SourceState, Verdict
from devherd.proto.spool_pb2 import Child, Device, Edits, Node, Offer, Problem

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1440, "height": 900}}


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
        "not registered: stopped by an operator; devherd ctl start resource:rdma_hca"
    )


def overlaps(one, other):
    return (
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


@pytest.fixture
def drawn(instance):
    """GPUs below switches, linked with each other; one is Unhealthy, one cordoned, one lost."""
    offer, paths = pairs_below_switches()
    addresses = [device.attributes["pci_address"] for device in offer.devices]
    for device, reason in zip(offer.devices, ([], ["xid"], ["cordoned"], ["gone"]), strict=True):
        device.reasons.extend(reason)
        device.attributes["nvlink_gpus"] = ",".join(addresses)
    instance.put(offer)
    instance.put(Offer(name="devic.es/kvm", vendor="generic", devices=[Device(id="0", replicas=9)]))
    spool.write(instance.run_dir / "devices.pb", inventory(paths))
    instance.put_scan()
    instance.start()
    return instance


@pytest.mark.parametrize("size", SIZES)
async def test_the_picture_is_on_the_first_screen_and_nothing_in_it_overlaps_or_is_cut(drawn, window, size):
    """On a phone and on a desktop."""
    page = await window(drawn.url, viewport=SIZES[size])
    cards = page.locator("#map li > a")
    await expect(cards).to_have_count(5)
    boxes = [await card.bounding_box() for card in await cards.all()]
    assert not any(overlaps(one, other) for one, other in pairwise(boxes))
    assert all(box["x"] + box["width"] <= SIZES[size]["width"] for box in boxes)
    assert boxes[0]["y"] + boxes[0]["height"] < SIZES[size]["height"]
    assert await page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


async def test_a_screen_reader_reads_the_picture_as_a_list_of_links(drawn, window):
    """Health, name and place of each card are words."""
    page = await window(drawn.url)
    picture = page.get_by_role("region", name="Picture of the node")
    names = [" ".join((await link.inner_text()).split()) for link in await picture.get_by_role("link").all()]
    assert names[1:] == ["GPU 0 holder unknown", "GPU 1 xid", "GPU 2 cordoned", "GPU 3 lost", "kvm holder unknown"]
    await expect(picture.get_by_role("list")).to_have_count(8)
    await expect(picture.get_by_role("img")).to_have_accessible_name("NVLink, each to each: GPU 0, GPU 1, GPU 2, GPU 3")
    await expect(picture.get_by_role("link", name="GPU 1")).to_have_accessible_description(
        "GPU 1, NVIDIA H100 80GB HBM3, 0000:41:00.0: Unhealthy: xid, holder unknown"
    )


async def test_a_square_leads_to_its_device_with_and_without_scripts(drawn, window):
    """With scripts its row is unfolded; the way past the picture is the first link."""
    plain = await window(drawn.url, java_script_enabled=False)
    await plain.locator("#map").get_by_role("link", name="GPU 1").click()
    await expect(plain.locator("[id='nvidia.com/gpu/GPU-1']")).to_be_in_viewport()
    page = await window(drawn.url)
    await page.locator("#map").get_by_role("link", name="GPU 0").click()
    await expect(page.locator("[id='nvidia.com/gpu/GPU-0'] .facts").first).to_be_visible()


async def test_in_forced_colours_what_is_held_and_what_is_not_differ(drawn, window):
    """The system's colours replace those of health; signs and words stay."""
    page = await window(drawn.url, forced_colors="active")
    key = page.locator("#map .key")
    fills = await page.evaluate("[...document.querySelectorAll('#map rect')].map(each => getComputedStyle(each).fill)")
    assert len(set(fills)) == 1
    await page.evaluate("document.querySelector('#map rect').classList.add('held')")
    fills = await page.evaluate("[...document.querySelectorAll('#map rect')].map(each => getComputedStyle(each).fill)")
    assert len(set(fills)) == 2
    await expect(key).to_contain_text("Unhealthy")
