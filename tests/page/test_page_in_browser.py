"""The status page in a browser: what readers see and do, and that it stays as they left it while it follows the node.

The page asks every two seconds: tests set its clock ahead, and wait for what they can see.
"""

import asyncio
import re
import socket

import pytest
from playwright.async_api import expect

from devherd.history import History
from devherd.proto.spool_pb2 import Child, Device, Offer

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAME = "nvidia.com/gpu"
PERIOD = 2_000


def gpus(*lost, number=4):
    """Devices of a resource, of which some are lost."""
    devices = [
        Device(
            id=f"GPU-{each}",
            reasons=["xid"] if each in lost else [],
            numa_nodes=[each % 2],
            attributes={"model": "NVIDIA H200", "pci_address": f"0000:{each:02x}:00.0"},
        )
        for each in range(number)
    ]
    return Offer(name=NAME, vendor="nvidia", devices=devices)


NICS = Offer(name="rdma/hca", vendor="rdma", devices=[Device(id=f"mlx5_{each}") for each in range(2)])


@pytest.fixture
def served(instance):
    """An instance in which all is well."""
    for resource in (gpus(), NICS):
        instance.put(resource)
        instance.put_state(resource.name, registered=True, registered_timestamp_seconds=1_000_000_000)
    instance.put_scan()
    instance.start()
    names = ("scanner", "resource:nvidia.com_gpu", "resource:rdma_hca")
    running = [Child(name=name, state="RUNNING", pid=7, started_timestamp_seconds=1_000_000_000) for name in names]
    instance.put_children(*running)
    return instance


def section(page, name=NAME):
    return page.locator(f"[id='{name}']")


def device(page, name):
    return page.locator(f"[id='{NAME}/{name}']")


async def fold(place):
    """Fold or unfold a resource or a device, as a click does."""
    await place.locator("summary").first.click()


async def turn(page, periods=1):
    """Let the page ask again."""
    await page.clock.fast_forward(PERIOD * periods)


async def test_the_page_follows_the_node_without_being_loaded_again(served, window):
    """A device fails and recovers: verdict, title and row say so."""
    page = await window(served.url)
    await page.evaluate("window.kept = true")
    await expect(page.get_by_role("status").first).to_have_text("live")
    await expect(page.locator(".verdict")).to_have_text("Healthy: all resources registered, 6 of 6 devices healthy")

    served.put(gpus(2))
    await turn(page)
    await expect(page.locator(".verdict")).to_have_text("Unhealthy: all resources registered, 1 of 6 devices unhealthy")
    await expect(page).to_have_title(re.compile("^1 problem: devherd on "))
    await expect(device(page, "GPU-2")).to_contain_text("Unhealthy: xid")
    await expect(section(page).locator("li").first).to_have_id(f"{NAME}/GPU-2")
    await expect(page.locator("#map a.bad")).to_contain_text("xid")
    await expect(page.locator("#map a.bad path.sign")).to_be_visible()

    served.put(gpus())
    await turn(page)
    await expect(page.locator(".verdict")).to_contain_text("Healthy:")
    await expect(section(page).locator("li").first).to_have_id(f"{NAME}/GPU-0")
    assert await page.evaluate("window.kept")


async def test_what_is_unhealthy_is_unfolded_from_the_beginning_and_the_rest_is_not(served, window):
    """An operator sees the evidence without a click."""
    served.put(gpus(2))
    page = await window(served.url)

    await expect(device(page, "GPU-2").locator(".facts")).to_be_visible()
    await expect(device(page, "GPU-1").locator("summary")).to_be_visible()
    await expect(device(page, "GPU-1").locator(".facts")).to_be_hidden()
    await expect(section(page, "rdma/hca").locator(".devices")).to_be_hidden()


async def test_folds_focus_selection_and_place_stay_when_the_page_changes(served, window):
    """A reload every five seconds took them."""
    served.put(gpus(2))
    page = await window(served.url, viewport={"width": 800, "height": 400})
    await fold(section(page, "rdma/hca"))
    await fold(device(page, "GPU-2"))
    await fold(device(page, "GPU-3"))
    fact = device(page, "GPU-3").get_by_role("definition").get_by_text("NVIDIA H200")
    await fact.evaluate("element => getSelection().selectAllChildren(element)")
    await device(page, "GPU-3").get_by_text("Link to this device").focus()

    served.put(gpus(1, 2))
    await turn(page)
    await expect(device(page, "GPU-1")).to_contain_text("Unhealthy: xid")

    await expect(section(page, "rdma/hca").locator(".devices")).to_be_visible()
    await expect(device(page, "GPU-2").locator(".facts")).to_be_hidden()
    await expect(device(page, "GPU-3").locator(".facts")).to_be_visible()
    assert await page.evaluate("getSelection().toString()") == "NVIDIA H200"
    assert await page.evaluate("document.activeElement.hash") == f"#{NAME}/GPU-3"

    before = await fact.bounding_box()
    served.put(Offer(name="amd.com/gpu", devices=[Device(id="card0", reasons=["wedged"])]))
    await turn(page)
    await expect(section(page, "amd.com/gpu")).to_contain_text("wedged")
    assert await page.evaluate("scrollY") > 0
    after = await fact.bounding_box()
    assert after["y"] == pytest.approx(before["y"], abs=1)


async def test_folds_stay_when_the_reader_loads_the_page_again(served, window):
    """As long as the tab is open."""
    page = await window(served.url)
    await fold(section(page))
    await page.reload()
    await expect(section(page).locator(".devices")).to_be_visible()
    await fold(section(page))
    await page.reload()
    await expect(section(page).locator(".devices")).to_be_hidden()


async def test_the_filter_shows_what_it_lets_through_while_the_reader_types(served, window):
    """The address says so too; without it everything is as it was."""
    page = await window(served.url)
    await page.get_by_label("Filter devices").fill("gpu-2")
    await page.clock.fast_forward(1000)
    await expect(device(page, "GPU-2")).to_be_visible()
    await expect(page.locator(".devices > li")).to_have_count(1)
    await expect(page.get_by_text("Devices that match “gpu-2”.")).to_be_visible()
    assert page.url == f"{served.url}/?filter=gpu-2"

    served.put(gpus(2))
    await turn(page)
    await expect(device(page, "GPU-2")).to_contain_text("Unhealthy: xid")
    await expect(page.locator(".devices > li")).to_have_count(1)

    await page.reload()
    await expect(page.get_by_label("Filter devices")).to_have_value("gpu-2")
    await page.get_by_label("Filter devices").fill("")
    await page.clock.fast_forward(1000)
    await expect(page.locator(".devices > li")).to_have_count(6)
    assert page.url == f"{served.url}/"


async def test_a_link_to_a_device_unfolds_it(served, window):
    """From elsewhere, and from the list of what is wrong."""
    page = await window(f"{served.url}/#{NAME}/GPU-3")
    await expect(device(page, "GPU-3").locator(".facts")).to_be_visible()
    await expect(device(page, "GPU-3").locator("summary")).to_be_focused()

    served.put(Offer(name="rdma/hca", devices=[Device(id="mlx5_0", reasons=["port-down"])]))
    await turn(page)
    await page.get_by_role("link", name="rdma/hca: 1 of 1 device unhealthy (port-down)").click()
    await expect(section(page, "rdma/hca").locator(".devices")).to_be_visible()


async def test_a_paused_page_asks_nothing_until_it_goes_on(served, window):
    """What changed meanwhile comes then."""
    page = await window(served.url)
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#state")).to_have_text("paused")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    served.put(gpus(2))
    for _ in range(5):
        await turn(page)
    assert asked == []

    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")


async def test_a_page_that_nobody_sees_asks_nothing(served, window):
    """It goes on when it is seen again."""
    page = await window(served.url)
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')) }"
    await page.evaluate(hide, arg=True)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(5):
        await turn(page)
    assert asked == []

    served.put(gpus(2))
    await page.evaluate(hide, arg=False)
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")


async def test_a_page_outlives_devherd_and_goes_on_with_the_next(served, window):
    """The tab stayed on the browser's error page for ever."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    served.end()
    (served.run_dir / "ready").unlink()
    served.configure(address)
    served.start()
    assert served.url == f"http://{address}"
    page = await window(served.url, expected=["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"])
    await fold(section(page))
    before = await page.locator(".verdict").text_content()

    served.end()
    await turn(page)
    await expect(page.locator("#state")).to_have_text("no answer, trying again")
    await expect(device(page, "GPU-0")).to_be_visible()
    silence = page.locator("#silence")
    await expect(silence).to_have_text(
        re.compile(rf"^No answer since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ; before that: {re.escape(before)}$")
    )
    await expect(page.locator(".verdict")).to_be_hidden()
    await expect(page).to_have_title(re.compile("^No answer: devherd on "))
    await expect(page.locator("main")).to_have_css("filter", "grayscale(1)")

    (served.run_dir / "ready").unlink()
    served.put(gpus(2))
    served.start()
    assert served.url == f"http://{address}"
    await page.clock.fast_forward(60_000)
    await expect(page.locator("#state")).to_have_text("live")
    await expect(device(page, "GPU-2")).to_contain_text("Unhealthy: xid")
    await expect(silence).to_be_hidden()
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")
    await expect(page).to_have_title(re.compile(r"^\d problems?: devherd on "))
    await expect(page.locator("main")).to_have_css("filter", "none")


async def test_a_page_waits_for_a_slow_answer_before_it_asks_again(served, window):
    """Readers must not make a slow server slower."""
    page = await window(served.url)
    held = []

    async def hold(route):
        """Until the test lets it go on."""
        go_on = asyncio.Event()
        held.append(go_on)
        await go_on.wait()
        await route.continue_()

    await page.route("**/*", hold)
    async with page.expect_request("**/*"):
        await turn(page)
    for _ in range(4):
        await turn(page)
    assert len(held) == 1

    served.put(gpus(2))
    held[0].set()
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")
    await page.unroute_all(behavior="ignoreErrors")


async def test_a_page_of_another_build_is_loaded_again(served, window):
    """After an upgrade of devherd its script would not fit."""
    page = await window(served.url)
    await page.evaluate("window.kept = true; document.querySelector('script').setAttribute('src', 'page.js?older')")
    served.put(gpus(2))
    async with page.expect_navigation():
        await turn(page)
    assert await page.evaluate("window.kept") is None
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")


async def test_everything_can_be_reached_and_done_by_keyboard(served, window):
    """Pause, the picture or the way past it, what is wrong, filter, fold and unfold, in the order of the page."""
    served.put(gpus(2))
    page = await window(served.url)
    focused = []
    for _ in range(60):
        await page.keyboard.press("Tab")
        focused.append(await page.evaluate("document.activeElement.innerText || document.activeElement.id"))
        if "rdma/hca" in focused[-1] and "healthy" in focused[-1]:
            break
    words = [re.split(r"\n| \d", each)[0].strip() for each in focused]
    assert words[:3] == ["Pause", "Skip the picture", "GPU-0"]
    assert focused[7] == f"{NAME}: 1 of 4 devices unhealthy (xid)"
    assert [
        each for each in words[7:] if each in ("Processes", "filter", NAME, "GPU-2", "GPU-0", "GPU-3", "rdma/hca")
    ] == [
        "Processes",
        "filter",
        NAME,
        "GPU-2",
        "GPU-0",
        "GPU-3",
        "rdma/hca",
    ]
    await page.keyboard.press("Enter")
    await expect(section(page, "rdma/hca").locator(".devices")).to_be_visible()
    await page.keyboard.press("Space")
    await expect(section(page, "rdma/hca").locator(".devices")).to_be_hidden()


async def test_a_resource_with_many_devices_is_fetched_when_it_is_unfolded(served, window):
    """And stays up to date then; the first page is small."""
    served.put(gpus(number=5_000))
    served.put(Offer(name="amd.com/gpu", devices=[Device(id=f"card{each}") for each in range(3_000)]))
    page = await window(served.url)
    rows = section(page).locator(".devices > li")
    before = await rows.count()
    assert before < 2_000

    await fold(section(page))
    await expect(section(page).get_by_text(re.compile("^Showing devices 1 to "))).to_be_visible()
    assert await rows.count() > before

    served.put(gpus(4_999, number=5_000))
    await turn(page)
    await expect(rows.first).to_contain_text("GPU-4999")
    await expect(rows.first).to_contain_text("Unhealthy: xid")
    assert await rows.count() > before


async def test_a_link_to_a_device_that_the_first_page_has_no_room_for_finds_it(served, window):
    """As a notification of an alert has it."""
    served.put(gpus(number=5_000))
    page = await window(f"{served.url}/#{NAME}/GPU-4321")
    await expect(device(page, "GPU-4321").locator(".facts")).to_be_visible()


async def test_a_link_to_a_resource_that_the_first_page_has_no_room_for_finds_it(served, window):
    """And to its device; from elsewhere, or from a page on which a filter hides it."""
    for number in range(150):
        served.put(Offer(name=f"example.com/r{number:03}", devices=[Device(id="0", attributes={"slot": "7"})]))
    far = "example.com/r149"
    page = await window(served.url)
    await expect(page.locator(".resource")).to_have_count(100)
    await page.get_by_role("link", name="Next").click()
    await expect(page.locator(".resource")).to_have_count(52)
    await expect(section(page, far)).to_be_visible()

    page = await window(f"{served.url}/#{far}/0")
    await expect(page.locator(f"[id='{far}/0'] .facts")).to_be_visible()
    assert page.url == f"{served.url}/?resource=example.com%2Fr149#{far}/0"
    await page.evaluate("location.hash = 'example.com/r007'")
    await expect(section(page, "example.com/r007").locator(".devices")).to_be_visible()


async def test_an_attribute_that_the_next_answer_does_not_have_goes(served, window):
    """Also the fold of what a filter has unfolded."""
    page = await window(served.url)
    await page.evaluate("document.getElementById('rdma/hca').setAttribute('title', 'of an older answer')")
    served.put(gpus(2))
    await turn(page)
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")
    assert await section(page, "rdma/hca").get_attribute("title") is None

    for text, is_open in (("mlx5", True), ("", False)):
        await page.get_by_label("Filter devices").fill(text)
        await page.clock.fast_forward(1000)
        await expect(section(page, "rdma/hca").locator(".devices")).to_be_visible(visible=is_open)


async def test_without_scripts_the_page_shows_the_same(served, window):
    """Folds, the filter and the pages of a long list are links and forms."""
    served.put(gpus(2))
    page = await window(served.url, java_script_enabled=False)
    await expect(page.locator(".verdict")).to_contain_text("Unhealthy:")
    await expect(page.locator(".as-of")).to_have_text(re.compile(r"^As of \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ\. Load"))
    await expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    await fold(section(page, "rdma/hca"))
    await expect(section(page, "rdma/hca").get_by_text("mlx5_1")).to_be_visible()
    await page.get_by_label("Filter devices").fill("mlx5_1")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator(".devices > li")).to_have_count(1)


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
async def test_nothing_is_cut_off_at_the_side(served, window, width):
    """Columns were, on a phone, without a hint: those of tables as well, which scroll sideways only where they must."""
    path = f"/sys/devices/pci0000:00/{'0000:00:01.0/' * 9}aer_dev_nonfatal: 3"
    history = History(served.run_dir / "history", "scanner")
    history.note("verdict", f"Healthy (warning: pci-aer): {path}", resource_name=NAME, device_id="GPU-1")
    assert history.keep()
    served.put(gpus(2))
    served.put(Offer(name=f"fpga.intel.com/af-695.d84.{'x' * 43}", devices=[Device(id="dfl-port.0")]))
    page = await window(served.url, viewport={"width": width, "height": 800})
    await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    await expect(page.get_by_text("aer_dev_nonfatal")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    tables = page.locator(".scroll")
    assert await tables.evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)") == [0, 0]
