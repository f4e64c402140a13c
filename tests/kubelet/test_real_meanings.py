"""Every meaning of the registry at the kubelet's own device manager: it comes about, and goes by its own way."""

import shutil

import pytest
from meaning_rows import PLAYED_ELSEWHERE, ROWS, missing
from meanings_bed import FILE, GPU, PATIENCE_SECONDS, SHARED, Bed
from nvml_stub import Stub, compiled

from devherd.reasons.registry import MEANINGS
from devherd_sim.monitors import MonitorServer
from devherd_sim.node import kernel_events, nvml_script
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.nvidia_faults import MpsDaemon
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

MPS_ROOT = "/run/nvidia/mps"
NODE = NodeSpec(
    fpga=[FpgaSpec(cards=20, afu_ids=[AFU_IDS[0]])],
    nvidia=NvidiaSpec(gpus=25, model="a100", nvlink="switch"),
    amd=[AmdSpec(cards=9)],
    intel_gpu=[IntelGpuSpec(cards=10)],
    xilinx_fpga=[XilinxFpgaSpec(cards=3)],
    rdma=[RdmaSpec(cards=12)],
    tree="run/licence = valid\n",
)


def config_of(directory, shared):
    """Quick polls, and scans that seldom forestall them; the operator's file, rules of the kernel log, a shared GPU."""
    spoken_of = {"vendor": "rdma"}
    own_rule = {"name": "squeaking", "contains": "bench:", "pattern": "^bench: "}
    return {
        "health": {
            "poll": "100ms",
            "amd_kfd": True,
            "external": [{"name": "report", "file": str(directory / "report.jsonl"), "match": spoken_of}],
            "kernel_log": {"optional": ["mlx5-health-compromised"], "rules": [own_rule]},
        },
        "scan": {"period": "2s", "probe_timeout": "5s"},
        "vendors": {"nvidia": {"mps_root": MPS_ROOT}},
        "resources": [
            {"match": {"pci_address": shared}, "sharing": {"strategy": "mps", "replicas": 2, "rename": SHARED}}
        ],
        "generic": [{"name": FILE, "groups": [{"paths": [{"path": "/run/licence", "type": "Mount"}]}]}],
    }


@pytest.fixture
def bed(herd_node, tool, tmp_path, monkeypatch):
    """All vendors' devices, NVML, an MPS daemon and both monitors.

    Many events come at once. The kernel has room for thousands, a simulated node's listener for ten: it is waited for.
    """
    monkeypatch.setattr(kernel_events, "SEND_SECONDS", PATIENCE_SECONDS)
    made = Bed(herd_node, NODE)
    root = made.node.root
    stub = Stub(compiled(tool("cc"), tmp_path / "libnvidia-ml.so.1"), root / nvml_script.SCRIPT)
    stub.put_below(root)
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(nvml_script.write(made.node)))
    (herd_node.directory / "report.jsonl").write_text('{"alive": true}\n')
    made.exporter = MonitorServer(root, "amd-exporter")
    with MpsDaemon(root, MPS_ROOT, SHARED) as made.daemon, MonitorServer(root, "xpumd"):
        made.start(config_of(herd_node.directory, made.node.nvidia.addresses()[-1]))
        yield made
        made.herd.stop_herd()
    made.exporter.stop()


def test_every_meaning_is_played_or_says_where_it_is():
    """A new one has to be added to meaning_rows.py."""
    assert missing() == []
    assert {(source, reason) for source, reason, *_ in PLAYED_ELSEWHERE} <= MEANINGS.keys()


@pytest.mark.timeout(400)
def test_every_meaning_comes_to_the_kubelet_and_goes_by_its_own_way(bed):
    """Unhealthy or a warning, at once or when it has stood for long enough; no process is restarted for any of it."""
    played = []
    for stage in (0, 1, 2):
        rows = bed.assigned([row for row in ROWS if row.stage == stage])
        bed.inject(rows)
        waiting = [pair for pair in rows if pair[0].meaning.after]
        bed.until([*lasting(played), *(pair for pair in rows if pair not in waiting)], open_to=waiting)
        bed.put_forward(1 + max(row.meaning.after for row, _ in rows))
        bed.until([*lasting(played), *rows])
        bed.take_back(rows)
        played += rows
        bed.until(lasting(played), over=played)
    for seconds in sorted({row.meaning.quiet_seconds for row, _ in lasting(played)}):
        bed.put_forward(seconds)
        bed.until([pair for pair in lasting(played) if pair[0].meaning.quiet_seconds > seconds], over=played)

    assert bed.herd.kubelet.ask("registrations") == dict.fromkeys(bed.devices, 1)
    assert {name: bed.pids()[name] for name in bed.children} == bed.children


def lasting(pairs):
    """What only time ends."""
    return [(row, device) for row, device in pairs if row.back is None and row.meaning.clears == "quiet"]


def test_a_device_whose_cdi_spec_cannot_be_written_is_given_to_no_pod_until_it_can(herd_node):
    """Its name would lead the runtime nowhere: something else is where the file belongs, and is taken away again."""
    config = {
        "vendors": {"nvidia": {"device_list_strategy": ["cdi-annotations"]}},
        "health": {"poll": "100ms"},
        "scan": {"period": "200ms"},
    }
    herd_node.start("nvidia-1", config)
    herd_node.until_capacity(GPU, 1, 1)
    (spec,) = herd_node.cdi.glob("*.json")
    spec.unlink()
    (spec / "in-the-way").mkdir(parents=True)

    herd_node.until_capacity(GPU, 1, 0)
    shutil.rmtree(spec)
    herd_node.until_capacity(GPU, 1, 1)

    assert herd_node.kubelet.registrations(GPU) == 1
