"""NVIDIA's fabric manager: without it no CUDA program starts on an A100 or V100 with NVSwitches."""

import os
import shutil
import subprocess

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.health.held import Now
from devherd.health.policy import FINE, Verdict
from devherd.scanner import observer
from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

NO_FABRIC = Verdict(reasons=("fabric",))
TO_A_LOOK = 10
"""Polls until each card's turn has come."""


class Host:
    """A host of GPUs on NVSwitches, and what is held against them."""

    def __init__(self, directory, monkeypatch, **spec) -> None:
        self._seconds = 1000.0
        monkeypatch.setattr(observer.Observer, "now", lambda _: Now(self._seconds, self._seconds, "boot"))
        self.node = SimulatedNode.create(
            directory / "host", NodeSpec(nvidia=NvidiaSpec(**{"nvlink": "switch", **spec}))
        )
        self._answer = directory / "host/nvml.json"

    def start(self, **health) -> "Host":
        """An observer that has looked once, with the fabric manager at work."""
        self.observer = observer.Observer(self.config(**health), nvml_answer=self._answer)
        self.observer.scan(0.0)
        assert set(self.after()) == {FINE}
        return self

    def config(self, **health):
        """With these options of health."""
        return resolve(Config.model_validate({"host_root": self.node.root, "health": health}))

    def stop(self) -> "Host":
        """The fabric manager ends."""
        faults.inject(self.node, "fabric-manager", "-")
        return self

    def go_on(self) -> "Host":
        """It runs again."""
        faults.clear(self.node, "fabric-manager", "-")
        return self

    def after(self, seconds: float = 0.0, polls: int = TO_A_LOOK) -> list[Verdict]:
        """What stands against each GPU after so many polls and seconds."""
        for _ in range(polls):
            self._seconds += seconds / polls
            self.observer.poll(periodic=True)
        keys = sorted(self.observer.inventory.entries)
        return [self.observer.policy.verdict(key) for key in keys]


@pytest.mark.parametrize("model", ["a100", "v100"])
def test_gpus_whose_fabric_manager_has_ended_for_half_a_minute_are_unhealthy_until_it_runs_again(
    tmp_path, monkeypatch, model
):
    """All of them at once: it is one program. A restart of the service takes seconds and takes no GPU away."""
    host = Host(tmp_path, monkeypatch, gpus=8, model=model).start().stop()
    assert host.after(20) == [FINE] * 8
    assert host.after(40) == [NO_FABRIC] * 8
    held = [one for _, all_held in host.observer.policy.all_held() for one in all_held]
    assert {(one.finding.source, one.finding.file) for one in held} == {
        ("fabric-manager", "/proc/driver/nvidia-nvswitch/devices")
    }
    assert "start the service nvidia-fabricmanager" in held[0].finding.detail
    assert host.go_on().after(15, polls=2 * TO_A_LOOK) == [FINE] * 8


def test_a_restart_of_the_fabric_manager_takes_no_gpu_away(tmp_path, monkeypatch):
    """Nor do two in a row."""
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100").start()
    for _ in range(2):
        assert host.stop().after(20) == [FINE] * 2
        assert host.go_on().after(20) == [FINE] * 2


def test_the_fabric_manager_is_known_by_the_name_and_the_state_that_the_kernel_shows(tmp_path, monkeypatch):
    """The kernel cuts the name after 15 characters, and shows a process that has ended until its parent asks."""
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100").start().stop()
    program = tmp_path / "nv-fabricmanager"
    shutil.copy(shutil.which("cat"), program)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"it has its own name by now\n")
        process.stdin.flush()
        process.stdout.readline()
        shown = host.node.root / f"proc/{process.pid}"
        shown.symlink_to(f"/proc/{process.pid}")
        while_it_runs = host.after(120)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert (shown / "comm").read_text() == "nv-fabricmanage\n"
        assert host.after(120) == [NO_FABRIC] * 2
    assert while_it_runs == [FINE] * 2


def test_gpus_that_register_with_their_fabric_are_left_to_nvml(tmp_path, monkeypatch):
    """From Hopper on the driver knows the state of each GPU."""
    host = Host(tmp_path, monkeypatch, gpus=8, model="h100").start().stop()
    assert host.after(120) == [FINE] * 8


def test_mig_devices_need_no_fabric_manager_and_whole_gpus_beside_them_do(tmp_path, monkeypatch):
    """A GPU in MIG mode has no use for its NVLinks."""
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100", nvml=True, mig=[None, ["1g.5gb", "1g.5gb"]])
    config = {"host_root": str(host.node.root), "vendors": {"nvidia": {"mig_strategy": "mixed"}}}
    host.observer = observer.Observer(resolve(Config.model_validate(config)))
    host.observer.scan(0.0)
    host.after()
    host.stop().after(120)
    found = {
        entry.resource_name: host.observer.policy.verdict(entry.key)
        for entry in host.observer.inventory.entries.values()
    }
    assert found == {"nvidia.com/gpu": NO_FABRIC, "nvidia.com/mig-1g.5gb": FINE}


def test_a_pod_that_does_not_see_the_host_s_processes_makes_no_statement(tmp_path, monkeypatch):
    """Without `hostPID` its second process is anything, and no fabric manager is among them."""
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100")
    (host.node.root / "proc/2/comm").write_text("devherd\n")
    assert host.start().stop().after(120) == [FINE] * 2


def test_the_source_can_be_switched_off_and_what_it_found_is_gone_at_once(tmp_path, monkeypatch):
    """Where a virtual machine that owns the switches runs the fabric manager."""
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100").start().stop()
    assert host.after(120) == [NO_FABRIC] * 2
    host.observer.reconfigure(host.config(sources={"fabric-manager": False}))
    assert host.after(polls=1) == [FINE] * 2
    assert host.after(60) == [FINE] * 2


def test_a_rule_decides_what_a_missing_fabric_manager_does(tmp_path, monkeypatch):
    """As for each reason."""
    rules = [{"source": "fabric-manager", "action": "warn", "after": "0s"}]
    host = Host(tmp_path, monkeypatch, gpus=2, model="a100").start(rules=rules).stop()
    assert host.after() == [Verdict(warnings=("fabric",))] * 2


def test_a_node_without_switches_has_no_fabric_manager_to_stop(tmp_path, monkeypatch):
    """The fault says so."""
    host = Host(tmp_path, monkeypatch, nvlink="none")
    with pytest.raises(UsageError, match="no fabric manager runs"):
        host.stop()
