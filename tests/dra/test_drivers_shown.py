"""What readers of an instance say with `front_end: dra`: of drivers what is known, of resources nothing wrong."""

import io
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group

from devherd.cli import explain_resource, status_table
from devherd.cli.subject import known_devices
from devherd.doctor.running import Instance
from devherd.doctor.running import judge as doctor_lines
from devherd.exporter import health
from devherd.exporter.metrics import registration_gauges
from devherd.exporter.status_page.overview import headline, troubles
from devherd.exporter.status_page.resources import sections
from devherd.exporter.status_page.view import View
from devherd.instance.read import RUNNING, InstanceState, live_inventory
from devherd.proto import spool_pb2
from devherd.proto.spool_pb2 import Child, Device, DraDriver, DraState, Offer, ScanSummary
from devherd.settings import Settings

GPU, NIC = "amd.com/gpu", "rdma/hca"
AMD, RDMA = "gpu.amd.com", "rdma.devherd.io"
ALLOCATIONS = {(GPU, "0"): [{"namespace": "default", "pod": "of-a-plugin", "container": "main"}]}


def process(name, state=RUNNING):
    """A child with a process id."""
    return Child(name=name, pid=7 if state == RUNNING else 0, state=state, started_timestamp_seconds=1.0)


def instance(a=None, b=None, *, states=(RUNNING, RUNNING), silent=()):
    """One with two resources by DRA: `a` and `b` say, by driver, why it is not registered."""
    offers = [
        Offer(name=GPU, vendor="amd", front_end="dra", devices=[Device(id="0", vendor="amd"), Device(id="1")]),
        Offer(name=NIC, vendor="rdma", front_end="dra", devices=[Device(id="x", vendor="rdma")]),
    ]
    said = {
        letter: DraState(drivers=[DraDriver(name=name, registered=not why, detail=why) for name, why in one.items()])
        for letter, one in (("a", a), ("b", b))
        if one is not None
    }
    children = [process("scanner"), process("exporter"), *map(process, ("dra:a", "dra:b"), states)]
    return InstanceState(
        resources=offers,
        scan=ScanSummary(timestamp_seconds=1.0),
        children={child.name: child for child in children},
        supervisor_pid=1,
        silent=frozenset(silent),
        dra_states=said,
    )


WELL = {AMD: "", RDMA: ""}


def text(parts):
    """What a terminal shows."""
    console = Console(file=io.StringIO(), width=200)
    console.print(Group(*parts))
    return console.file.getvalue()


def table(herd):
    """`devherd status`."""
    return text(status_table.parts(herd, herd.known_holders(ALLOCATIONS)))


def test_with_both_processes_all_is_well_and_nothing_is_said_of_resource_processes():
    """They do not exist, and pods do not hold by resource."""
    herd = instance(WELL, WELL)
    shown = table(herd)
    assert "not registered" not in shown
    assert "not started" not in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert rows[GPU] == ["2", "2", "unknown", "by", "DRA"]
    assert rows[AMD] == rows[RDMA] == ["registered", "registered"]
    assert [*health.reasons_not_ready(herd)] == []
    assert headline(herd) == "all DRA drivers registered, 3 of 3 devices healthy"
    assert [*troubles(herd)] == []
    assert not status_table.has_problem(herd, herd.resources)
    assert [family.samples for family in registration_gauges(herd, kubelet_listens=True)] == [[], [], []]
    page = "".join(sections(herd, ALLOCATIONS, View()))
    assert "not registered" not in page
    assert page.count("by DRA") == 2


def test_the_way_of_registration_is_that_of_the_device_plugin_alone():
    """It has no effect by DRA."""
    about = spool_pb2.Instance(kubelet_dir="/kubelet", registration="kubelet_socket")
    herd = replace(instance(WELL, WELL), instance=about)
    assert "kubelet /kubelet, DRA; " in table(herd)


def test_a_driver_that_one_process_serves_is_ready_and_the_other_is_shown():
    """Pods need one. What the kubelet lost is no news for them, but for who looks."""
    herd = instance(WELL, {AMD: "refused", RDMA: ""})
    assert [*health.reasons_not_ready(herd)] == []
    assert "refused" in table(herd)
    assert not status_table.has_problem(herd, herd.resources)


@pytest.mark.parametrize(
    ("herd", "reasons"),
    [
        (instance({AMD: "no", RDMA: ""}, {AMD: "", RDMA: "no"}), []),
        (instance({AMD: "no", RDMA: ""}, {AMD: "why", RDMA: "no"}), [f"{AMD}: dra:a: no; dra:b: why"]),
        (instance({AMD: "no"}, {AMD: "no"}, states=(RUNNING, "BACKOFF")), [
            f"{AMD}: dra:a: no; dra:b: its process is BACKOFF"
        ]),
        (instance(WELL, WELL, states=("FATAL", "FATAL")), [
            f"{name}: dra:a: its process is FATAL; dra:b: its process is FATAL" for name in (AMD, RDMA)
        ]),
        (instance(WELL, {AMD: "no", RDMA: ""}, silent=["dra:a"]), [
            f"{AMD}: dra:a: it gives no sign of life; dra:b: no"
        ]),
        (instance(), ["DRA: no driver is served yet"]),
        (instance({AMD: ""}), []),
    ],
)  # fmt: skip
def test_not_ready_are_the_drivers_that_neither_process_has_registered(herd, reasons):
    """With the reason of each; and the same everywhere."""
    assert [*health.reasons_not_ready(herd)] == reasons
    shown = table(herd)
    assert [
        line.removeprefix("not registered: ") for line in shown.splitlines() if "not registered:" in line
    ] == reasons
    assert status_table.has_problem(herd, herd.resources) is bool(
        reasons or any(child.state != RUNNING for child in herd.children.values()) or herd.silent
    )
    assert {trouble.text for trouble in troubles(herd)} >= set(reasons)
    found = Instance(settings=Settings(), is_running=True, herd=herd)
    told = [line.what for line in doctor_lines(found) if "is not registered" in line.what]
    assert told == [reason.replace(": ", " is not registered: ", 1) for reason in reasons]


def test_the_inventory_says_null_of_what_is_not_known_and_has_the_drivers():
    """As the schema has it: no process serves a resource, and claims tell who holds devices."""
    told = live_inventory(instance(WELL, {AMD: "refused", RDMA: ""}), ALLOCATIONS)
    assert [(one["registered"], one["detail"], one["child"]) for one in told["resources"]] == [(None, "", None)] * 2
    assert {device["allocated"] for one in told["resources"] for device in one["devices"]} == {None}
    assert told["drivers"] == [
        {
            "name": AMD,
            "registered": True,
            "by": [{"process": "dra:a", "detail": None}, {"process": "dra:b", "detail": "refused"}],
        },
        {
            "name": RDMA,
            "registered": True,
            "by": [{"process": "dra:a", "detail": None}, {"process": "dra:b", "detail": None}],
        },
    ]


def test_a_resource_is_explained_without_a_word_on_registration_or_holders(tmp_path):
    """Exit code 0: nothing is wrong with it."""
    herd = instance(WELL, WELL)
    known = known_devices(Settings(run_dir=tmp_path), herd, herd.known_holders(ALLOCATIONS))
    explanation, code = explain_resource.of_resource(known, herd.resources[0])
    lines = [*explain_resource.lines_of_resource(explanation)]
    assert (code, lines[0]) == (0, f"{GPU} is offered for DRA")
    assert "  held:        unknown, the kubelet cannot be asked, or pods have it by claims" in lines
    assert not any("another pod" in line for line in lines)


def test_an_instance_of_the_device_plugin_has_no_drivers_whatever_files_are_left():
    """A run directory from before another start."""
    herd = InstanceState(
        resources=[Offer(name=GPU, front_end="device-plugin", devices=[Device(id="0")])],
        dra_states={"a": DraState(drivers=[DraDriver(name=AMD)])},
        children={"scanner": process("scanner")},
    )
    assert (herd.is_dra, [*herd.drivers], [*herd.drivers_waiting()]) == (False, [], [])
    assert herd.known_holders(ALLOCATIONS) is ALLOCATIONS
    assert len([*health.reasons_not_ready(herd)]) == 1


WHY = st.sampled_from(["", "", "refused", "away"])


@given(
    a=st.none() | st.dictionaries(st.sampled_from([AMD, RDMA]), WHY),
    b=st.none() | st.dictionaries(st.sampled_from([AMD, RDMA]), WHY),
    states=st.tuples(*itertools.repeat(st.sampled_from([RUNNING, RUNNING, "BACKOFF", "STOPPED"]), 2)),
)
def test_a_driver_is_registered_if_a_running_process_says_so(a, b, states):
    """And by no other; every reader gets along with whatever the files say."""
    herd = instance(a, b, states=states)
    for driver in herd.drivers:
        by = [(a, states[0]), (b, states[1])]
        said = [one is not None and one.get(driver.name) == "" and state == RUNNING for one, state in by]
        assert [not why for why in driver.refusals.values()] == said
        assert driver.registered is any(said)
        assert bool(driver.detail) is not driver.registered
    assert {driver.name for driver in herd.drivers} == {*(a or {}), *(b or {})}
    assert table(herd)
    live_inventory(herd, None)
