"""Rows: what befalls a process of the herd."""

import asyncio
import os
import resource
import signal
import socket

from host_faults import unhealthy
from matrix import row
from trial import ALL, CODEC, CRYPTO, GPU, Trial, descriptors

from devherd_sim.node import faults

ONE = "it registers again from a new process, the others are not disturbed"


@row(ONE, registers=(GPU,), replaces=(GPU,), in_a_row=3, share=4, short=2)
async def child_killed(trial: Trial) -> None:
    """A resource child gets SIGKILL."""
    os.kill(trial.pid(GPU), signal.SIGKILL)


@row(ONE, registers=(CRYPTO,), replaces=(CRYPTO,), in_a_row=3)
async def child_crashes(trial: Trial) -> None:
    """A resource child gets SIGSEGV."""
    os.kill(trial.pid(CRYPTO), signal.SIGSEGV)


@row(AGAIN := "every resource registers again", registers=ALL, replaces=ALL, in_a_row=3)
async def all_children_killed(trial: Trial) -> None:
    """All resource children get SIGKILL together."""
    for name in ALL:
        os.kill(trial.pid(name), signal.SIGKILL)


@row(AGAIN, registers=ALL, replaces=ALL, in_a_row=2)
async def child_killed_while_the_kubelet_restarts(trial: Trial) -> None:
    """The kubelet restarts, and up to 100 ms later all resource children get SIGKILL."""
    await trial.kubelet.restart()
    await asyncio.sleep(trial.random.uniform(0, 0.1))
    for name in ALL:
        os.kill(trial.pid(name), signal.SIGKILL)
    trial._mark = trial.kubelet.events.mark()
    trial.mended()


@row(
    "it is taken for dead after 10 s; " + ONE,
    registers=(CODEC,),
    replaces=(CODEC,),
    in_a_row=1,
    share=0.1,
)
async def child_stopped(trial: Trial) -> None:
    """A resource child gets SIGSTOP."""
    os.kill(trial.pid(CODEC), signal.SIGSTOP)


@row(ONE, registers=(GPU,), replaces=(GPU,), in_a_row=3, excused="the exception is a defect and is told as one")
async def child_raises(trial: Trial) -> None:
    """An exception that nobody expects is thrown in a resource child's main loop."""
    (trial.directory / "rig" / f"raise-resource:{GPU.replace('/', '_')}").touch()
    await trial.until_logged("thrown by a test")


@row("it goes on by itself when there are some again", registers=ALL, replaces=(), in_a_row=2, short=2)
async def child_out_of_file_descriptors(trial: Trial) -> None:
    """A resource child may open no more files while the kubelet restarts; up to 2 s later it may."""
    pid = trial.pid(CODEC)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    await trial.kubelet.restart()
    await asyncio.sleep(trial.random.uniform(0.5, 2))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    trial.mended()


@row(ONE, registers=(CRYPTO,), replaces=(CRYPTO,), in_a_row=2)
async def supervisor_out_of_file_descriptors(trial: Trial) -> None:
    """The supervisor may open no more files while a child gets SIGKILL; up to 2 s later it may."""
    pid = trial.herd.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    victim = trial.pid(CRYPTO)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) - 4, hard))
    os.kill(victim, signal.SIGKILL)
    await asyncio.sleep(trial.random.uniform(0.5, 2))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    for child in filter(None, trial.pids().values()):  # one that was started meanwhile has inherited the limit
        most = resource.prlimit(child, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(child, resource.RLIMIT_NOFILE, (min(soft, most), most))
    trial.mended()


@row("nobody notices; a failure that follows is seen by the new one", replaces=("scanner",), in_a_row=3, short=2)
async def scanner_killed(trial: Trial) -> None:
    """The scanner gets SIGKILL, and a port fails while there is none."""
    os.kill(trial.pid("scanner"), signal.SIGKILL)
    faults.inject(trial.node, "fpga-errors", "intel-fpga-port.1")
    await unhealthy(trial)
    faults.clear(trial.node, "fpga-errors", "intel-fpga-port.1")
    trial.mended()


@row(
    "another takes over; nobody notices",
    replaces=("scanner",),
    in_a_row=3,
    excused="the exception is a defect and is told as one",
)
async def scanner_raises(trial: Trial) -> None:
    """An exception that nobody expects is thrown in the scanner's main loop."""
    (trial.directory / "rig" / "raise-scanner").touch()
    await trial.until_logged("thrown by a test")


@row("it is taken for dead after 10 s; the kubelet notices nothing", replaces=("scanner",), in_a_row=1, share=0.1)
async def scanner_stopped(trial: Trial) -> None:
    """The scanner gets SIGSTOP."""
    os.kill(trial.pid("scanner"), signal.SIGSTOP)


@row("the pages are there again; nobody else notices", replaces=("exporter",), in_a_row=3)
async def exporter_killed(trial: Trial) -> None:
    """The exporter gets SIGKILL."""
    before = (await trial.child("exporter")).pid
    os.kill(before, signal.SIGKILL)
    await trial.until(lambda: trial.pids().get("exporter") not in (0, None, before), "another")
    await until_ready(trial)


@row("it says so and takes the port when it is free; nobody else notices", replaces=("exporter",), in_a_row=2)
async def port_taken(trial: Trial) -> None:
    """While the exporter is stopped somebody takes its port, and lets go of it up to 2 s after its start."""
    await trial.ctl("stop", "exporter")
    with socket.create_server(("127.0.0.1", int(trial.settings.listen.rpartition(":")[2]))):
        await trial.ctl("start", "exporter")
        await trial.until_logged("cannot listen on")
        await asyncio.sleep(trial.random.uniform(0, 2))
    trial.mended()
    await until_ready(trial)


async def until_ready(trial: Trial) -> None:
    """The exporter answers, and finds everything registered."""
    for _ in range(600):
        if await trial.get("/readyz") == 200:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(await trial.get("/readyz"))
