"""The Grafana dashboard and the examples of docs/metrics.md: every query has data.

Of a node on which everything happens that a query can show.
"""

import asyncio
import itertools
import json
import math
import re
import time

import pytest
from monitoring import DEPLOY, ROOT
from test_alerts_end_to_end import GPU, devherd

from devherd.exporter import declarations
from devherd_sim.kubelet.pod import ContainerSpec, Pod
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import NodeSpec

DASHBOARD = json.loads((DEPLOY / "grafana" / "devherd.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXAMPLES = re.findall(r"^```promql\n(.*?)^```", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE | re.DOTALL)
VARIABLES = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
STOPPED = "example.com/stopped"


def below(row):
    """The titles of the panels of a row."""
    kinds = [(panel["type"], panel["title"]) for panel in DASHBOARD["panels"]]
    after = kinds[kinds.index(("row", row)) + 1 :]
    return {title for _, title in itertools.takewhile(lambda panel: panel[0] != "row", after)}


COUNTED = below("What cards count")


def queries():
    """Every expression with its panel's title, as Grafana sends it, each variable `All`; and the examples."""
    yield from (("docs/metrics.md", example) for example in EXAMPLES)
    asked = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
    asked += [(annotation["name"], annotation["expr"]) for annotation in DASHBOARD["annotations"]["list"]]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            values = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            label = values[2] if values[2] != "cluster" else "node"  # there is none of several clusters here
            asked.append((f"${variable['name']}", f"count by ({label}) ({values[1]})"))
    for title, expression in asked:
        within = re.sub(r"\$__(rate_interval|range)\b", "1m", expression)
        yield title, re.sub(rf"\$({'|'.join(VARIABLES)})\b", ".*", within)


RACK = {"name": "rack", "match": {"vendor": "nvidia"}, "command": ["/bin/true"], "interval": "10s", "timeout": "5s"}
CONFIG = {
    "health": {"poll": "1s", "external": [RACK]},
    "vendors": {"amd": {"enabled": True}},
    "simulated": [{"name": STOPPED, "count": 1}],
}
"""A source of health that reports, a vendor that is not there, and a resource to be stopped."""


@pytest.mark.on("nvidia-8", CONFIG)
async def test_every_query_has_data_when_there_is_something_to_show(testbed, monitor):
    """A device that failed in a pod, one with a warning, a resource without its process, a vendor that is missing."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)
    await testbed.kubelet.until_allocatable(STOPPED, 1, within=30)
    monitoring = monitor()
    await monitoring.until(
        lambda: monitoring.query(f'devherd_registered{{resource_name="{STOPPED}"}} == 1'), "devherd is scraped"
    )
    for pod, requested in (("train", 3), ("serve", 4)):
        await testbed.kubelet.admit(Pod(pod, (ContainerSpec("main", {GPU: requested}),)))
        counted = f'devherd_preferred_allocation_duration_seconds_count{{resource_name="{GPU}"}}'
        await monitoring.until(lambda counted=counted: monitoring.query(counted), "the first is counted")
    first, second, *_ = (path.name for path in (testbed.node.root / "proc/driver/nvidia/gpus").iterdir())
    for fault, address in (("xid", first), ("xid", second), ("aer", first)):  # a pod holds one of the two
        value = ("nonfatal",) if fault == "aer" else ()
        await devherd(testbed, "sim", "fault", str(testbed.node.root), fault, address, *value)
    await devherd(testbed, "ctl", "stop", STOPPED)

    waiting, deadline = [query for query in queries() if query[0] not in COUNTED], time.monotonic() + 40
    while waiting and time.monotonic() < deadline:
        waiting = await without_data(monitoring, waiting)
    assert waiting == []


async def without_data(monitoring, asked):
    """Those of these queries."""
    results = [await monitoring.query(expression) for _, expression in asked]
    return [
        query for query, result in zip(asked, results, strict=True) if all(math.isnan(value) for _, value in result)
    ]


CARDS = NodeSpec(nvidia=NvidiaSpec(gpus=1), amd=[AmdSpec(cards=1)], rdma=[RdmaSpec(cards=1)])
NVML_FIELDS = {
    "ECC": 6,
    "retired pages": 29,
    "remapped rows": 142,
    "rows not in use": 301,
    "PCI Express replays": 94,
    "NVLink replays": 161,
}
"""By `nvml.h`: what rises."""


def count_more(node, turn):
    """Every card has counted something since the turn before; an event has NVML's source look again."""
    (gpu,) = node.nvidia.addresses()
    amd = min(path.name for path in (node.root / "sys/bus/pci/drivers/amdgpu").glob("*:*:*.*"))
    if turn:
        faults.clear(node, "nvml", gpu)
    fields = {91: 1, 165: 0} | dict.fromkeys(NVML_FIELDS.values(), 10 + turn)
    for field, value in fields.items():
        faults.inject(node, "nvml", gpu, f"field id={field} value={value}")
    faults.inject(node, "nvml", gpu, "clocks reasons=4")
    faults.inject(node, "nvml", gpu, "event kind=8 data=31")
    faults.inject(node, "ras", amd, "umc")
    faults.inject(node, "aer", amd, "correctable")
    for counter in ("link_downed", "symbol_error"):
        faults.inject(node, "rdma-counter", "mlx5_0", counter)


@pytest.mark.on(CARDS, {"health": {"poll": "100ms"}}, nvml=True)
async def test_every_query_of_what_cards_count_has_data_when_they_count_more(testbed, monitor):
    """NVIDIA's by NVML, AMD's and RDMA's by sysfs: each is read again, and has risen between two scrapes."""
    for resource in (GPU, "amd.com/gpu", "rdma/hca"):
        await testbed.kubelet.until_allocatable(resource, 1, within=30)
    monitoring = monitor()
    waiting, deadline, turn = [query for query in queries() if query[0] in COUNTED], time.monotonic() + 90, 0
    assert waiting
    while waiting and time.monotonic() < deadline:
        count_more(testbed.node, turn)
        turn += 1
        await asyncio.sleep(3)
        waiting = await without_data(monitoring, waiting)
    assert waiting == []


def test_every_panel_asks_the_chosen_data_source_for_the_chosen_nodes():
    """By variables that the dashboard has."""
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            asked = set(re.findall(r"\$(?!__)(\w+)", target["expr"]))
            assert {"cluster", "node"} <= asked <= VARIABLES, target["expr"]


def test_every_panel_has_an_id_of_its_own():
    """Grafana mixes up those with one id."""
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_family_of_gauges_is_on_the_dashboard():
    """But for those that say the same in another way, and the exporter's own process."""
    asked = set(re.findall(r"devherd_\w+", json.dumps(DASHBOARD)))
    shown = {each.name for each in declarations.ALL if {each.name, f"{each.name}_total"} & asked}
    missing = {each.name for each in declarations.ALL if not each.name.startswith("process_")} - shown
    assert missing == {
        "devherd_device_healthy",
        "devherd_device_held_elsewhere",  # a finding, and shown as one
        "devherd_device_open_processes",
        "devherd_scan_problems",
        "devherd_list_and_watch_streams",
        "devherd_child_start_time_seconds",
        "devherd_config_reloads",
        "devherd_config_reload_failures",
    }
