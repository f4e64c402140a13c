"""The status page as HTML: whatever devices, pods, children and errors are called, it is shown and changes nothing."""

from dataclasses import replace
from html.parser import HTMLParser
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd import spool
from devherd.exporter.status_page import device
from devherd.exporter.status_page.page import render
from devherd.exporter.status_page.resources import MOST_RESOURCES
from devherd.exporter.status_page.view import View
from devherd.history import HistoryEvent
from devherd.instance.read import InstanceState
from devherd.proto.health_pb2 import UNHEALTHY, WARN, Held, LostDevice, SourceState, Verdict
from devherd.proto.spool_pb2 import (
    Address,
    Child,
    Configuration,
    Device,
    Edits,
    Instance,
    Node,
    Offer,
    Problem,
    ResourceState,
    ScanSummary,
)

INSTANCE = Instance(
    version="1.2.3",
    revision="0123abc",
    pid=4711,
    started=1_000_000_000,
    config="/etc/devherd/config.yaml",
    host_root="/host",
    kubelet_dir="/var/lib/kubelet",
    run_dir="/run/devherd",
    listen="127.0.0.1:9478",
    registration="kubelet_socket",
)


class Page(HTMLParser):
    """What a browser makes of it: tags with their attributes, the texts between them, and the text of each section."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.of_sections = [], [], {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))
        if tag == "section":
            self.of_sections[dict(attrs)["id"]] = ""

    def handle_data(self, data):
        self.texts.append(data)
        if self.of_sections:
            self.of_sections[list(self.of_sections)[-1]] += data

    @property
    def of_page(self):
        """All texts but those of the picture, where names are short."""
        picture = self.of_sections.get("map", "")
        return "".join(self.texts).replace(picture, "", 1)

    @property
    def said(self):
        """The line of state and the problems."""
        return self.of_sections["verdict"].strip() + self.of_sections["troubles"].strip()

    @property
    def ids(self):
        return [value for _, attributes in self.tags for name, value in attributes if name == "id"]


def page_of(herd, allocations=None, events=(), **view):
    return Page(render(herd, allocations, events, View(**view)).body)


def page_called(name):
    """A page on which everything that has a name has this one."""
    held = Held(source=name, reason=name, detail=name, file=name, value=name, ends=name, so_far=name, do=name)
    named = Device(id=name, reasons=[name], edits=Edits(nodes=[Node(host_path=name)]), attributes={"model": name})
    herd = InstanceState(
        [Offer(name=name, vendor=name, devices=[named])],
        {name: ResourceState(name=name, detail=name)},
        ScanSummary(problems=[Problem(vendor=name, path=name, error=name, device=name)]),
        {name: Child(name=name, state=name, pid=1, restarts={name: 1}, last_exit=name)},
        1,
        configuration=Configuration(source=name, refusal=name, warnings=[name]),
        verdicts=[Verdict(device=name, held=[held])],
        sources=[SourceState(source=name, failed=name)],
        instance=Instance(version=name, revision=name, config=name, kubelet_dir=name, registration=name),
    )
    happened = [HistoryEvent(1.0, "verdict", name, name, name), HistoryEvent(2.0, "process", name, process=name)]
    holder = {"namespace": name, "pod": name, "container": name}
    return page_of(herd, {(name, name): [holder]}, happened, filter=name)


def shape(page):
    """Tags with the names of their attributes."""
    return [(tag, [name for name, _ in attributes]) for tag, attributes in page.tags]


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "</td></tr><img src=x onerror=alert(1)>", '"onclick="x', "&lt;b&gt;", "$tag$${x}"],
)
def test_every_text_is_shown_as_it_is_and_none_becomes_html(name):
    """The tags are those of a page with harmless names; each text is there in full, as many times."""
    harmless = page_called("plain")
    hostile = page_called(name)
    assert shape(hostile) == shape(harmless)
    assert "".join(hostile.of_page).count(name) == "".join(harmless.of_page).count("plain") > 25


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=12).map(
        "-{}".format
    )
)
def test_no_name_changes_the_tags(name):
    """Of any characters."""
    assert shape(page_called(name)) == shape(page_called("plain"))


WELL = InstanceState(
    [Offer(name="example.com/gpu", devices=[Device(id="0"), Device(id="1")])],
    {"example.com/gpu": ResourceState(name="example.com/gpu", registered=True)},
    ScanSummary(),
    {
        "scanner": Child(name="scanner", state="RUNNING", pid=1),
        "resource:example.com_gpu": Child(name="resource:example.com_gpu", state="RUNNING", pid=2),
    },
    1,
)
GPU_LOST = Offer(name="example.com/gpu", devices=[Device(id="0", reasons=["off-bus"]), Device(id="1")])
SLOW_LINK = Offer(name="example.com/gpu", devices=[Device(id="0", warnings=["link-degraded"]), Device(id="1")])
CORDONED = Offer(name="example.com/gpu", devices=[Device(id="0", reasons=["cordoned"]), Device(id="1")])
OTHER_LOST = Offer(name="example.com/other", devices=[Device(id="0", reasons=["off-bus"])])
STOPPED = Child(
    name="resource:example.com_gpu", state="STOPPED", started_timestamp_seconds=1, last_exit="exit status 0"
)
REFUSED = Configuration(refusal="simulatde: unknown key")


@pytest.mark.parametrize(
    ("herd", "said"),
    [
        (WELL, "Healthy: all resources registered, 2 of 2 devices healthy"),
        (
            replace(WELL, resources=[GPU_LOST]),
            (
                "Unhealthy: all resources registered, 1 of 2 devices unhealthy"
                "example.com/gpu: 1 of 2 devices unhealthy (off-bus)"
            ),
        ),
        (
            replace(WELL, resources=[SLOW_LINK]),
            (
                "Warning: all resources registered, 2 of 2 devices healthy"
                "example.com/gpu: 1 of 2 devices with a warning (link-degraded)"
            ),
        ),
        (
            replace(WELL, resources=[CORDONED]),
            (
                "Healthy: all resources registered, 1 of 2 devices healthy, 1 cordoned"
                "example.com/gpu: 1 of 2 devices cordoned"
            ),
        ),
        (
            replace(WELL, states={}),
            (
                "Unhealthy: 1 of 1 resources not registered, 2 of 2 devices healthy"
                "example.com/gpu: no status from its process yet"
            ),
        ),
        (
            replace(WELL, children={"scanner": WELL.children["scanner"]}, resources=[*WELL.resources, OTHER_LOST]),
            (
                "Unhealthy: 2 of 2 resources not registered, 1 of 3 devices unhealthy"
                "all 2 resources: its process has not been started yet"
                "example.com/other: 1 of 1 device unhealthy (off-bus)"
            ),
        ),
        (
            replace(WELL, children={**WELL.children, STOPPED.name: STOPPED}),
            (
                "Unhealthy: 1 of 1 resources not registered, 2 of 2 devices healthy"
                "example.com/gpu: stopped by an operator; devherd ctl start resource:example.com_gpu"
            ),
        ),
        (
            replace(WELL, scan=ScanSummary(problems=[Problem(error="x")])),
            "Warning: all resources registered, 2 of 2 devices healthy1 problem of the last scan",
        ),
        (
            replace(WELL, children={**WELL.children, "source:nvml": Child(name="source:nvml", state="FATAL")}),
            "Unhealthy: all resources registered, 2 of 2 devices healthysource:nvml: FATAL",
        ),
        (
            replace(WELL, configuration=REFUSED),
            (
                "Unhealthy: all resources registered, 2 of 2 devices healthy"
                "configuration not reloaded, the old one stays: simulatde: unknown key"
            ),
        ),
        (
            replace(WELL, served=[Address(address="[::]:80", refusal="Permission denied", cure="name another")]),
            (
                "Unhealthy: all resources registered, 2 of 2 devices healthy"
                "not serving [::]:80: Permission denied — name another"
            ),
        ),
        (
            replace(WELL, sources=[SourceState(source="nvml", failed="no library")]),
            "Warning: all resources registered, 2 of 2 devices healthysource nvml cannot check devices: no library",
        ),
        (replace(WELL, resources=[], states={}), "Healthy: no devices"),
        (replace(WELL, resources=[], states={}, scan=None), "Warning: no devicesno scan has finished yet"),
    ],
    ids=[
        "well",
        "device",
        "warning",
        "cordoned",
        "unregistered",
        "all unregistered",
        "stopped",
        "problem",
        "process",
        "configuration",
        "address",
        "source",
        "no devices",
        "no scan",
    ],
)
def test_the_first_line_is_green_only_when_nothing_is_wrong(herd, said):
    """A page said "All is well." above unhealthy devices, because the instance was alive and ready."""
    assert page_of(herd).said == said


def test_the_head_says_which_instance_runs_and_since_when():
    """An operator asks that first: there was no uptime, no age of the scan, no configuration."""
    configuration = Configuration(loaded_timestamp_seconds=1_000_000_060)
    page = page_of(
        replace(WELL, instance=INSTANCE, configuration=configuration, scan=ScanSummary(timestamp_seconds=1_000_000_120))
    )
    said = "".join(page.texts).partition("Version")[2].partition("As of ")[0]
    assert said.strip() == (
        "1.2.3 (0123abc)Process id4711Running since2001-09-09 01:46:40Z"
        "Configuration/etc/devherd/config.yaml, loaded 2001-09-09 01:47:40Z"
        "Kubelet/var/lib/kubelet (kubelet_socket)Last scan2001-09-09 01:48:40Z"
    )


def test_a_note_of_the_last_scan_is_shown_and_makes_nothing_unhealthy():
    """Notes were in the JSON and in `devherd status` alone."""
    notice = Problem(vendor="nvidia", path="/proc/driver/nvidia/capabilities", error="6 MIG devices left out: <cure>")
    page = page_of(replace(WELL, scan=ScanSummary(notices=[notice])))
    assert page.said == "Healthy: all resources registered, 2 of 2 devices healthy"
    assert (
        page.of_sections["notes"].split() == f"Notes {notice.path}: {notice.error}".replace("Notes /", "Notes/").split()
    )


def test_recent_events_are_newest_first_with_links_to_their_devices():
    """Those for which there is no room are in `devherd events`."""
    happened = [
        HistoryEvent(1_000_000_000 + number, "verdict", f"event {number}.", "example.com/gpu", "0")
        for number in range(40)
    ]
    page = page_of(WELL, events=[*happened, HistoryEvent(1_000_000_060, "process", "started", process="scanner")])
    shown = page.of_sections["events"]
    assert (
        shown.index("2001-09-09 01:47:40Zprocessscannerstarted") < shown.index("event 39.") < shown.index("event 38.")
    )
    assert "event 11." in shown
    assert "event 10." not in shown
    assert ("a", [("href", "#example.com/gpu/0")]) in page.tags


def test_the_devices_of_a_resource_that_nobody_serves_are_not_green():
    """They were, when its process had been stopped."""
    served, unserved = page_of(WELL), page_of(replace(WELL, states={}))
    assert "2 of 2 healthy" in served.of_sections["example.com/gpu"]
    assert ("span", [("class", "good")]) in served.tags
    assert ("span", [("class", "off")]) in unserved.tags
    assert "not registered: no status from its process yet" in unserved.of_sections["example.com/gpu"]


def test_every_finding_is_shown_with_its_evidence():
    """Source, file and value, since when, how often, what takes it back, and why it still holds."""
    held = Held(
        source="kernel-log",
        reason="xid",
        action=UNHEALTHY,
        detail="Xid 79: GPU has fallen off the bus",
        file="/dev/kmsg",
        value="NVRM: Xid 79",
        first_timestamp_seconds=1_000_000_000,
        last_timestamp_seconds=1_000_000_060,
        count=3,
        do="reboot the node",
        ends="by a reboot",
        so_far="nothing of that was seen since 07:57:53Z",
    )
    warned = Held(source="link", reason="link-degraded", action=WARN, detail="x8 of x16", only_warned="it was so")
    over = Held(source="kernel-log", reason="pci-aer", is_over=True, count=1)
    verdict = Verdict(vendor="v", card="c", device="0", held=[held, warned, over])
    lost = Device(id="0", vendor="v", card="c", reasons=["xid"])
    herd = replace(WELL, resources=[Offer(name="example.com/gpu", devices=[lost])], verdicts=[verdict])
    shown = page_of(herd).of_sections["example.com/gpu"]
    assert "Unhealthy: xid since 2001-09-09 01:46:40Z" in shown
    assert (
        "xid (unhealthy), source kernel-log: Xid 79: GPU has fallen off the bus"
        "Doreboot the node"
        "Read/dev/kmsg: NVRM: Xid 79"
        "Since2001-09-09 01:46:40Z, raised 3 times, last 2001-09-09 01:47:40Z"
        "Endsby a reboot"
        "So farnothing of that was seen since 07:57:53Z"
    ) in shown
    assert "link-degraded (warn), source link: x8 of x16" in shown
    assert "Only a warningit was so" in shown
    assert "Past events:pci-aer" in shown


def test_a_shared_device_is_one_row():
    """A hundred replicas made a hundred, which said the same."""
    shared = Device(id="0", replicas=100)
    herd = replace(WELL, resources=[Offer(name="example.com/gpu", devices=[shared])])
    holder = {"namespace": "n", "pod": "p", "container": "c"}
    page = page_of(herd, {("example.com/gpu", f"0::{number}"): [holder] for number in range(30)})
    shown = page.of_sections["example.com/gpu"]
    assert [each for each in page.ids if each.startswith("example.com/gpu/")] == ["example.com/gpu/0"]
    assert "100 of 100 healthy30 allocated" in shown
    assert "0 (100 replicas)Healthy30 of 100 allocated" in shown
    assert "0::19: n/p (c)and 10 more" in shown


def many(number, *, facts=0):
    """A herd with so many devices of one resource; number 7 of them is unhealthy."""
    attributes = {f"fact_{number}": "a value" for number in range(facts)}
    devices = [Device(id=f"gpu-{number}", attributes=attributes) for number in range(number)]
    devices[7].reasons.append("xid")
    return replace(WELL, resources=[Offer(name="example.com/gpu", devices=devices)])


def test_a_page_of_ten_thousand_devices_is_small_and_has_the_unhealthy_one_first():
    """It was 500 rows long, and named a page for the rest, without a link."""
    herd = many(10_000, facts=20)
    whole = render(herd, None, (), View()).body
    assert len(whole.encode()) < 300_000
    page = Page(whole)
    rows = [each for each in page.ids if each.startswith("example.com/gpu/")]
    assert rows[:3] == ["example.com/gpu/gpu-7", "example.com/gpu/gpu-0", "example.com/gpu/gpu-1"]
    assert f"Showing {len(rows)} of 10,000 devices. Show more" in page.of_sections["example.com/gpu"]
    assert ("a", [("href", "?resource=example.com/gpu"), ("class", "grow")]) in page.tags


def named(number, **fields):
    """A resource with one device."""
    return Offer(name=f"example.com/r{number:05}", devices=[Device(id=f"device-{number}", **fields)])


def test_a_page_of_ten_thousand_resources_is_small_and_has_the_unhealthy_one_first():
    """Each is on one of the pages that follow each other; names are in order where there is room for all."""
    resources = [named(number) for number in range(9_999)] + [named(9_999, reasons=["xid"])]
    registered = {each.name: ResourceState(name=each.name, registered=True) for each in resources}
    children = {f"resource:{spool.key_of(name)}": Child(state="RUNNING") for name in registered}
    herd = InstanceState(resources, registered, ScanSummary(), children, 1, instance=INSTANCE)

    body = render(herd, {}, (), View()).body
    assert len(body.encode()) < 300_000
    assert list(Page(body).of_sections)[-MOST_RESOURCES - 1 :][:2] == ["resources", "example.com/r09999"]
    assert "Showing resources 1 to 100 of 10,000." in body
    assert 'href="?skip=100"' in body

    last = render(herd, {}, (), View(skip=9_900)).body
    assert list(Page(last).of_sections)[-MOST_RESOURCES:] == [each.name for each in resources[9_899:9_999]]
    assert "Showing resources 9,901 to 10,000 of 10,000." in last
    assert ">Next</a>" not in last
    assert "No more resources." in render(herd, {}, (), View(skip=10_000)).body

    few = InstanceState(resources[-50:], registered, ScanSummary(), children, 1, instance=INSTANCE)
    assert list(page_of(few, {}).of_sections)[-50:] == [each.name for each in few.resources]


def test_ten_thousand_devices_of_one_card_are_not_each_linked_from_each_other():
    """Simulated devices, or a group of nodes: it took 8 s to make the links, nearly all of which were not shown."""
    herd = many(10_000)
    for each in herd.resources[0].devices:
        each.card = "one"
    with mock.patch.object(device, "link", side_effect=device.link) as link:
        shown = page_of(herd).of_sections["example.com/gpu"]
    assert "Same cardexample.com/gpu/gpu-0" in shown
    assert "and 9979 more" in shown
    assert link.call_count < 100_000


def test_each_device_is_on_one_of_the_pages_that_follow_each_other():
    """By the links below the list, of which a reader without scripts gets there as well."""
    herd, view, seen = many(1_000, facts=20), View(resource="example.com/gpu"), []
    while view is not None:
        page = Page(render(herd, None, (), view).body)
        seen += [each for each in page.ids if each.startswith("example.com/gpu/")]
        links = [dict(attributes)["href"] for tag, attributes in page.tags if tag == "a"]
        ahead = [View.of_query(link[1:]) for link in links if f"from={len(seen)}" in link]
        view = ahead[0] if ahead else None
    assert sorted(seen) == sorted(f"example.com/gpu/gpu-{number}" for number in range(1_000))


NVIDIA = Offer(
    name="nvidia.com/gpu",
    devices=[
        Device(id="GPU-1", card="0000:3b:00.0", attributes={"model": "NVIDIA H200"}),
        Device(id="GPU-2", card="0000:5e:00.0", attributes={"model": "NVIDIA H200"}, reasons=["xid"]),
        Device(id="GPU-3", card="0000:86:00.0", attributes={"model": "NVIDIA L4"}, warnings=["link-degraded"]),
    ],
)
MIXED = replace(WELL, resources=[WELL.resources[0], NVIDIA])
HELD = {("nvidia.com/gpu", "GPU-1"): [{"namespace": "research", "pod": "train-0", "container": "main"}]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h200", {"GPU-1", "GPU-2"}),
        ("H200 3b:00", {"GPU-1"}),
        ("nvidia.com/gpu", {"GPU-1", "GPU-2", "GPU-3"}),
        ("unhealthy", {"GPU-2"}),
        ("healthy", {"0", "1", "GPU-1", "GPU-3"}),
        ("xid", {"GPU-2"}),
        ("warning", {"GPU-3"}),
        ("research/train", {"GPU-1"}),
        ("allocated", {"GPU-1"}),
        ("free nvidia", {"GPU-3"}),
        ("gpu-2::7", {"GPU-2"}),
        ("nothing", set()),
    ],
)
def test_a_filter_shows_the_devices_in_which_all_its_words_are_found(text, found):
    """And no resource without any of them."""
    page = page_of(MIXED, HELD, filter=text)
    ids = {each for each in page.ids if each.count("/") == 2}
    assert {each.rpartition("/")[2] for each in ids} == found
    assert {each for each in page.ids if each.count("/") == 1} == {each.rpartition("/")[0] for each in ids}
    assert ("No device matches." in page.texts) == (not found)


def test_who_holds_a_device_is_unknown_while_the_kubelet_cannot_be_asked():
    """Then nothing is free, and nothing allocated."""
    shown = page_of(WELL).of_sections["example.com/gpu"]
    assert "allocated: unknown" in shown
    assert "holder unknown" in shown
    assert not [each for each in page_of(MIXED, filter="free").ids if "/" in each]


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ("", View()),
        ("filter=+a++b&resource=example.com/gpu&from=20", View("a b", "example.com/gpu", 20)),
        ("filter=%3Cb%3E&from=-1&x=y", View("<b>")),
        ("from=99999999999999&filter=" + "x" * 300, View("x" * 200)),
    ],
)
def test_the_address_says_what_is_shown(query, view):
    """And what makes no sense in it is ignored."""
    assert View.of_query(query) == view
    assert View.of_query(view.query[1:]) == view


def test_a_cordon_is_not_red_and_says_who_why_and_what_ends_it():
    """Defect: the page turned red for what an operator wanted, and promised that three good looks would end it."""
    held = Held(
        source="cordon",
        reason="cordoned",
        detail="bench",
        file="devherd cordon",
        value="by root",
        count=1,
        ends="by devherd uncordon example.com/gpu 0",
    )
    herd = replace(WELL, resources=[CORDONED], verdicts=[Verdict(device="0", held=[held])])
    page = page_of(herd)
    styles = {value for _, attributes in page.tags for name, value in attributes if name == "class"}
    shown = "".join(page.texts)

    assert not any(style and style.split()[-1] in {"bad", "warn"} for style in styles)
    assert not any(text.startswith("1 problem") for text in page.texts)
    assert "Unhealthy: cordoned by root: bench" in shown
    assert "Endsby devherd uncordon example.com/gpu 0" in shown


def test_a_generic_device_shows_its_path_without_being_unfolded():
    """Its id is a hash, which says nothing."""
    generic = Device(id="6f1a", edits=Edits(nodes=[Node(host_path="/dev/ttyS0"), Node(host_path="/dev/ttyS1")]))
    page = render(replace(WELL, resources=[Offer(name="example.com/gpu", devices=[generic])]), None, (), View()).body

    line = page.partition("6f1a</span>")[2].partition("</summary>")[0]
    assert "/dev/ttyS0" in line
    assert "/dev/ttyS1" not in line


def test_a_lost_device_reddens_the_page_and_has_a_row_with_all_that_helps_to_find_it():
    """Every device that is listed is Healthy: nothing else would say that one is missing."""
    lost = LostDevice(
        resource_name="nvidia.com/gpu",
        device="GPU-9",
        since_timestamp_seconds=1_700_000_000,
        pci_address="0000:83:00.0",
        slot="7",
        serial="1565023018293",
        pods=["default/train"],
        findings=[Held(source="xid", reason="xid")],
    )
    page = page_of(
        InstanceState([Offer(name="nvidia.com/gpu", vendor="nvidia", devices=[Device(id="GPU-1")])], lost=[lost])
    )
    section = page.of_sections["lost"]
    for text in ("GPU-9", "0000:83:00.0", "7", "1565023018293", "default/train", "xid", "devherd forget DEVICE"):
        assert text in section
    assert "nvidia.com/gpu: 1 device missing" in page.texts
    assert any(text.endswith(", 1 missing") for text in page.texts)
    assert "Unhealthy" in page.texts
