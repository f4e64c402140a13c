"""`nvidia-device-plugin` as the image has it: what NVIDIA's GPU operator starts where it names devherd's image."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import scratch
from command_line import devherd

from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

IMAGE = Path(__file__).parents[2] / "deploy" / "image"
OPERATORS = {
    "PASS_DEVICE_SPECS": "true",
    "FAIL_ON_INIT_ERROR": "true",
    "DEVICE_LIST_STRATEGY": "envvar",
    "DEVICE_ID_STRATEGY": "uuid",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
    "MPS_ROOT": "/run/nvidia/mps",
    "MIG_STRATEGY": "single",
    "NVIDIA_DRIVER_ROOT": "/",
    "DRIVER_ROOT_CTR_PATH": "/host",
}
"""The container's variables in gpu-operator a22dbf67, assets/state-device-plugin/0500_daemonset.yaml, that of
`mig.strategy`, and two of /run/nvidia/validations/driver-ready, which the entrypoint reads."""


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


async def test_the_operator_gets_nvidias_resources_and_nothing_of_other_vendors(directory, monkeypatch):
    """By the program's name and variables alone; a container has the nodes that `PASS_DEVICE_SPECS` promises."""
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=2), fpga=[FpgaSpec()]))
    settings = testbed.settings
    places = {"HOST_ROOT": settings.host_root, "RUN_DIR": settings.run_dir}
    variables = {f"DEVHERD_{name}": str(place) for name, place in places.items()}
    for name, value in {**OPERATORS, **variables, "DEVHERD_LISTEN": "", "TMPDIR": str(directory)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    # The options that a testbed gives are behind the script's end.
    script = f"exec {IMAGE / 'nvidia-device-plugin'} --kubelet-dir={settings.kubelet_dir}"
    testbed.command = ("sh", "-c", script, "options")
    async with testbed:
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        answer = (await testbed.kubelet.allocate("nvidia.com/gpu", 1)).answer()
        assert answer["envs"].keys() == {"NVIDIA_VISIBLE_DEVICES"}
        assert "/dev/nvidiactl" in [device["host_path"] for device in answer["devices"]]
        assert {name for name in testbed.children() if name.startswith("resource:")} == {"resource:nvidia.com_gpu"}
        assert await testbed.stop_herd() == 0
    assert "devherd: FAIL_ON_INIT_ERROR is left out: without a driver devherd waits" in testbed.log


def test_what_the_operators_entrypoint_asks_of_the_image_is_there(tmp_path):
    """It looks for modules in the output of lsmod, `grep "^gdrdrv "`; and starts the plugin by its name."""
    (tmp_path / "modules").write_text("gdrdrv 24576 0 - Live 0x0000000000000000 (OE)\n")
    script = (IMAGE / "lsmod").read_text().replace("/proc/modules", str(tmp_path / "modules"))
    listed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert listed.startswith("gdrdrv ")
    for program in ("lsmod", "nvidia-device-plugin"):
        assert os.access(IMAGE / program, os.X_OK)
        assert f"deploy/image/{program} " in (IMAGE.parent / "Containerfile").read_text()


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"MIG_STRATEGY": "mixd"}, "mig_strategy"),
        (
            {"PASS_DEVICE_SPECS": "yes"},
            "PASS_DEVICE_SPECS is 'yes' — it is neither true nor false — write true or false",
        ),
        ({"CONFIG_FILE": "/nonexistent/config.yaml"}, "/nonexistent/config.yaml"),
    ],
)
def test_what_the_plugin_would_refuse_is_an_error_of_one_line(variables, error):
    """Before anything is started."""
    outcome = devherd("nvidia-device-plugin", environment=variables)
    assert outcome.code == 2
    assert error in outcome.error_line
