"""The status page as HTML: whatever devices, pods, children and errors are called, it is shown and changes nothing."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.exporter import status_page
from devherd.heartbeat import Heartbeats
from devherd.instance import Herd
from devherd.proto.spool_pb2 import (
    Child,
    Configuration,
    Device,
    Edits,
    Node,
    Problem,
    Resource,
    ResourceState,
    ScanSummary,
)

HEARTBEATS = Heartbeats(1)


class Page(HTMLParser):
    """What a browser makes of it: tags with their attributes, and the texts between them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_data(self, data):
        self.texts.append(data)


def page_of(name):
    """A page on which everything that has a name has this one."""
    device = Device(id=name, reasons=[name], edits=Edits(nodes=[Node(host_path=name)]), attributes={name: name})
    herd = Herd(
        [Resource(name=name, vendor=name, devices=[device])],
        {name: ResourceState(name=name, detail=name)},
        ScanSummary(problems=[Problem(vendor=name, path=name, error=name, device=name)]),
        {name: Child(name=name, state=name, pid=1, restarts={name: 1}, last_exit=name)},
        1,
    )
    holder = {"namespace": name, "pod": name, "container": name}
    return Page(status_page.render(herd, {(name, name): [holder]}, [name], HEARTBEATS))


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "</td></tr><img src=x onerror=alert(1)>", '" onclick="x', "&lt;b&gt;", "$host ${x}"],
)
def test_every_text_is_shown_as_it_is_and_none_becomes_html(name):
    """The tags are those of a page with harmless names; each text is there in full, as many times."""
    harmless = page_of("plain")
    hostile = page_of(name)
    assert hostile.tags == harmless.tags
    assert "".join(hostile.texts).count(name) == "".join(harmless.texts).count("plain") > 15


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12))
def test_no_name_changes_the_tags(name):
    """Of any characters."""
    assert page_of(name).tags == page_of("plain").tags


WELL = Herd(
    [Resource(name="example.com/gpu", devices=[Device(id="0"), Device(id="1", warnings=["link-degraded"])])],
    {"example.com/gpu": ResourceState(name="example.com/gpu", registered=True)},
    ScanSummary(),
    {"scanner": Child(name="scanner", state="RUNNING", pid=1)},
    1,
)
GPU_LOST = Resource(name="example.com/gpu", devices=[Device(id="0", reasons=["off-bus"]), Device(id="1")])
REFUSED = Configuration(refusal="simulatde: unknown key")


@pytest.mark.parametrize(
    ("herd", "said"),
    [
        (replace(WELL, resources=[GPU_LOST]), "example.com/gpu: 1 of 2 devices Unhealthy"),
        (replace(WELL, scan=ScanSummary(problems=[Problem(error="x")])), "problems of the last scan: 1"),
        (replace(WELL, children={"source:nvml": Child(name="source:nvml", state="FATAL")}), "source:nvml: FATAL"),
        (replace(WELL, configuration=REFUSED), "the old one stays: simulatde: unknown key"),
    ],
    ids=["device", "problem", "process", "configuration"],
)
def test_all_is_well_only_when_nothing_is_wrong(herd, said):
    """An instance that is alive and ready may have devices that are not: the first line says so."""
    assert "All is well." in status_page.render(WELL, None, [], HEARTBEATS)
    page = status_page.render(herd, None, [], HEARTBEATS)
    assert "All is well." not in page
    assert said in page.partition("<h2>")[0]
