"""Rows: what befalls the processes that look after devices' health, and what they ask."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from matrix import row
from nvml_stub import Stub, compiled
from trial import DEVICES, GPU, Trial

from devherd import spool
from devherd.proto import health_pb2
from devherd_sim.monitors import MonitorServer
from devherd_sim.node import faults, nvml_script
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

NVML, PROGRAM, FILE, XPUMD = "source:nvml", "source:external-watch", "source:external-report", "source:xpumd"
COMPILER = "cc --version"
ILL = DEVICES[GPU][-1]
SAYS = f'{{"device": {{"device": "{ILL}"}}, "reason": "burnt"}}'
SILENT = "no device changes, and what its source holds against one stands; "
WATCH = """#!/bin/sh
# Says the same again and again; a file in its place says what else it does.
while :; do
  [ -e {0}/noise ] && head -c 3000 /dev/urandom
  echo '{1}'
  sleep 0.2
done
"""


async def with_sources(trial: Trial) -> None:
    """A node with NVIDIA's and Intel's GPUs, too; each source holds something against one device."""
    spec = preset("fpga-opae-2")
    spec = spec.model_copy(update={"nvidia": NvidiaSpec(gpus=2), "intel_gpu": [IntelGpuSpec(cards=2)]})
    trial.node = SimulatedNode.create(trial.inside.host_root, spec)
    await _with_nvml(trial)
    _with_monitor(trial)
    _with_externals(trial)


async def _with_nvml(trial: Trial) -> None:
    compiler = shutil.which("cc")
    library = await asyncio.to_thread(compiled, compiler, trial.directory / "libnvidia-ml.so.1")
    root = trial.inside.host_root
    Stub(library, root / nvml_script.SCRIPT).put_below(root)
    os.environ["DEVHERD_NVML_STUB"] = str(nvml_script.write(trial.node))
    ill, well = trial.node.nvidia.addresses()
    faults.inject(trial.node, "nvml", ill, "field id=230 value=1")
    uuids = [trial.node.nvidia.information(address)["GPU UUID"] for address in (ill, well)]
    trial.devices["nvidia.com/gpu"] = dict(zip(uuids, ("Unhealthy", "Healthy"), strict=True))
    trial.sources.add(NVML)


def _with_monitor(trial: Trial) -> None:
    root = trial.inside.host_root
    functions = sorted((root / "sys/bus/pci/drivers/xe").glob("*:*:*.*"))
    faults.inject(trial.node, "xpumd", functions[0].name)
    trial.stack.enter_context(MonitorServer(root, "xpumd"))
    cards = [next(function.glob("drm/card?")).name for function in functions]
    trial.devices["gpu.intel.com/xe"] = {f"{cards[0]}-0": "Unhealthy", f"{cards[1]}-0": "Healthy"}
    trial.sources.add(XPUMD)


def _with_externals(trial: Trial) -> None:
    script, report = trial.directory / "watch", trial.directory / "report.jsonl"
    script.write_text(WATCH.format(trial.directory, SAYS))
    script.chmod(0o755)
    report.write_text(f"{SAYS}\n")
    match = {"id": ILL}
    trial.change_config(
        health={
            "external": [
                {"name": "watch", "command": [str(script)], "match": match, "max_age": "2s"},
                {"name": "report", "file": str(report), "match": match, "max_age": "1h"},
            ]
        }
    )
    trial.devices[GPU][ILL] = "Unhealthy"
    trial.sources |= {PROGRAM, FILE}


def source_row(holds: str, **options: object):
    """A row on such a herd, of which the kubelet hears nothing."""
    return row(SILENT + holds, prepare=with_sources, needs=COMPILER, is_silent=True, **({"in_a_row": 2} | options))


def program_of(trial: Trial) -> int:
    """The operator's program."""
    pid = trial.pid(PROGRAM)
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def until_said(trial: Trial, source: str, text: str) -> None:
    """`devherd explain` says why a source cannot check."""
    name = source.partition(":")[2]
    await trial.until(lambda: text in trial.failed_sources().get(name, ""), f"{source}: `{text}`", timeout=40)


@source_row("another process takes over", replaces=(NVML,))
async def source_nvml_killed(trial: Trial) -> None:
    """Process source:nvml gets SIGKILL."""
    os.kill(trial.pid(NVML), signal.SIGKILL)


@source_row("it is taken for dead after 10 s, and another one takes over", replaces=(NVML,), in_a_row=1, share=0.1)
async def source_nvml_stopped(trial: Trial) -> None:
    """Process source:nvml gets SIGSTOP."""
    os.kill(trial.pid(NVML), signal.SIGSTOP)


@source_row(
    "it is given up and said so; another process goes on when NVML does", replaces=(NVML,), in_a_row=1, share=0.1
)
async def nvml_hangs(trial: Trial) -> None:
    """NVML does not answer any more; it does again up to 1 s after it was given up, which is after 20 s."""
    for function in ("nvmlEventSetWait_v2", "nvmlInit_v2"):
        faults.inject(trial.node, "nvml", nvml_script.LIBRARY, f"hang {function}")
    await trial.until(lambda: "NVML did not answer within" in trial.log_since, "NVML is given up", timeout=60)
    await asyncio.sleep(trial.random.uniform(0, 1))
    faults.clear(trial.node, "nvml", nvml_script.LIBRARY)
    trial.mended()


@source_row("it is written again", replaces=())
async def source_nvml_writes_garbage(trial: Trial) -> None:
    """The findings of source:nvml become noise."""
    await noise_in_the_findings(trial, NVML)


@source_row("another process takes over", replaces=(PROGRAM, FILE, XPUMD))
async def listeners_killed(trial: Trial) -> None:
    """The processes that listen to a program, to a file and to a monitor get SIGKILL together."""
    for name in (PROGRAM, FILE, XPUMD):
        os.kill(trial.pid(name), signal.SIGKILL)


@source_row(
    "they are taken for dead after 10 s, and others take over",
    replaces=(PROGRAM, FILE, XPUMD),
    in_a_row=1,
    share=0.1,
)
async def listeners_stopped(trial: Trial) -> None:
    """The processes that listen to a program, to a file and to a monitor get SIGSTOP."""
    for name in (PROGRAM, FILE, XPUMD):
        os.kill(trial.pid(name), signal.SIGSTOP)


@source_row("it is written again", replaces=())
async def a_listener_writes_garbage(trial: Trial) -> None:
    """The findings of one of the processes that listen become noise."""
    await noise_in_the_findings(trial, trial.random.choice((PROGRAM, FILE, XPUMD)))


@source_row("it is said, and the program started again", replaces=())
async def external_program_killed(trial: Trial) -> None:
    """The operator's program gets SIGKILL."""
    os.kill(program_of(trial), signal.SIGKILL)
    await until_said(trial, PROGRAM, "killed by SIGKILL")


@source_row("it is said, and the program ended and started again", replaces=())
async def external_program_stopped(trial: Trial) -> None:
    """The operator's program gets SIGSTOP, and is silent."""
    os.kill(program_of(trial), signal.SIGSTOP)
    await until_said(trial, PROGRAM, "no report for 2 s")


@source_row("what is no line is ignored, and that is logged", replaces=(), in_a_row=1)
async def external_program_prints_garbage(trial: Trial) -> None:
    """The operator's program prints noise between its lines for up to 2 s."""
    noise = trial.directory / "noise"
    noise.touch()
    await trial.until_logged("a line is ignored")
    await asyncio.sleep(trial.random.uniform(0, 2))
    noise.unlink()
    trial.mended()


async def noise_in_the_findings(trial: Trial, source: str) -> None:
    """Somebody writes into the file of a source."""
    name = source.partition(":")[2]
    file = spool.path_of(trial.settings.findings_directory, name)
    file.write_bytes(trial.random.randbytes(200))
    await trial.until_logged(f"cannot read the findings of source {name}")
    await trial.until(lambda: _is_readable(file), "it is written again", timeout=40)


def _is_readable(file: Path) -> bool:
    try:
        spool.read(file, health_pb2.Findings)
    except spool.SpoolError:
        return False
    return True
