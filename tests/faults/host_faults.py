"""Rows: what befalls devices, files and limits of the host."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from matrix import row
from trial import ALL, CODEC, CRYPTO, DEVICES, GPU, Trial, demand

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.node import faults

PORT = "intel-fpga-port.1"  # of CODEC
UNHEALTHY = "its device is Unhealthy meanwhile and Healthy afterwards; nothing registers again"
MOUNTS = "unshare --user --map-root-user --mount true"
FUSE = f"{MOUNTS} && test -w /dev/fuse"
HANGING_FILE = Path(__file__).with_name("hanging_file.py")


async def unhealthy(trial: Trial) -> None:
    """The kubelet knows that CODEC's device failed."""
    await trial.kubelet.events.until(
        lambda: trial.kubelet.devices(CODEC) == {PORT: "Unhealthy"}, within=30, what=f"{CODEC} unhealthy"
    )


@row(UNHEALTHY, in_a_row=10)
async def device_node_removed_and_returned(trial: Trial) -> None:
    """A device's node vanishes from /dev and is back once that was noticed."""
    faults.inject(trial.node, "node", PORT)
    await unhealthy(trial)
    faults.clear(trial.node, "node", PORT)
    trial.mended()


@row("in the end it is Healthy; nothing registers again, few lists are sent", in_a_row=5)
async def device_node_flapping(trial: Trial) -> None:
    """A device's node vanishes and returns 20 times within a second or so."""
    mark = trial.kubelet.events.mark()
    for _ in range(20):
        faults.inject(trial.node, "node", PORT)
        await asyncio.sleep(trial.random.uniform(0, 0.05))
        faults.clear(trial.node, "node", PORT)
        await asyncio.sleep(trial.random.uniform(0, 0.05))
    lists = trial.kubelet.events.since(mark, "list", CODEC)
    assert len(lists) <= 20, lists
    trial.mended()


@row(UNHEALTHY, in_a_row=5)
async def fifo_in_place_of_an_attribute(trial: Trial) -> None:
    """An attribute of a port becomes a FIFO that nobody writes to."""
    attribute = trial.node.path_of(PORT) / "afu_id"
    text = attribute.read_bytes()
    attribute.unlink()
    os.mkfifo(attribute)
    await asyncio.sleep(trial.random.uniform(0.5, 1.5))  # nothing waits for it, and the resource keeps its name
    attribute.unlink()
    attribute.write_bytes(text)
    trial.mended()


async def mount_hanging_file(trial: Trial) -> None:
    """The herd runs where an attribute of a port is a FUSE file."""
    attribute = trial.node.path_of(PORT) / "errors" / "errors"
    command = ("unshare", "--user", "--map-root-user", "--mount", sys.executable, HANGING_FILE, attribute, "0x0")
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    trial.stack.push_async_callback(end_hanging_file, server)
    trial.helpers.add(server.pid)
    if not await server.stdout.readline():
        raise OSError((await server.stderr.read()).decode())
    trial.hanging = server
    enter = ("nsenter", f"--target={server.pid}", "--user", "--mount", "--preserve-credentials", "--wdns=/")
    trial.command = (*enter, *trial.command)


async def end_hanging_file(server: asyncio.subprocess.Process) -> None:
    """The end of the server ends what still hangs."""
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    await server.wait()


async def tell_hanging_file(trial: Trial, order: str) -> None:
    """Let reads hang, or flow."""
    trial.hanging.stdin.write(f"{order}\n".encode())
    await trial.hanging.stdout.readline()


@row(
    "the device is Unhealthy, with reason probe-timeout, the others are not touched; Healthy when the read comes back",
    prepare=mount_hanging_file,
    needs=FUSE,
    in_a_row=2,
    share=0.3,
)
async def hanging_read(trial: Trial) -> None:
    """Reads of a FUSE file in place of a port's attribute hang in the kernel, for up to 2 s after that was noticed."""
    await tell_hanging_file(trial, "hang")
    await unhealthy(trial)
    resource = spool.read(spool.path_of(trial.settings.resources_directory, spool.key_of(CODEC)), spool_pb2.Resource)
    assert list(resource.devices[0].reasons) == ["probe-timeout"]
    await asyncio.sleep(trial.random.uniform(0, 2))
    await tell_hanging_file(trial, "flow")
    trial.mended()


@row(
    "the resources go on; the new scanner starts, and takes over, when the read comes back",
    prepare=mount_hanging_file,
    needs=FUSE,
    replaces=("scanner",),
    in_a_row=1,
    share=0.3,
)
async def hanging_read_and_scanner_killed(trial: Trial) -> None:
    """The scanner gets SIGKILL while a read hangs in the kernel: it cannot die before the read ends."""
    await tell_hanging_file(trial, "hang")
    await unhealthy(trial)
    os.kill(trial.pid("scanner"), signal.SIGKILL)
    await asyncio.sleep(trial.random.uniform(0, 2))
    await tell_hanging_file(trial, "flow")
    trial.mended()


def spool_file(trial: Trial, name: str) -> Path:
    """The spool file of a resource."""
    return spool.path_of(trial.settings.resources_directory, spool.key_of(name))


@row("the last good one stays in force; it is written anew with the next scan", in_a_row=3)
async def spool_file_torn(trial: Trial) -> None:
    """A resource's spool file is cut in the middle."""
    path = spool_file(trial, GPU)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 1])
    await trial.until(lambda: _offers_the_same(path, whole), "it is written anew")


@row("the last good one stays in force; it is written anew with the next scan", in_a_row=3)
async def spool_file_empty(trial: Trial) -> None:
    """A resource's spool file becomes empty."""
    path = spool_file(trial, CRYPTO)
    whole = path.read_bytes()
    path.write_bytes(b"")
    await trial.until(lambda: _offers_the_same(path, whole), "it is written anew")


@row("the new child waits for the file that is written anew", registers=(GPU,), replaces=(GPU,), in_a_row=2)
async def spool_file_torn_and_child_killed(trial: Trial) -> None:
    """A resource's spool file becomes noise, and its child, who still knew what was in it, gets SIGKILL."""
    spool_file(trial, GPU).write_bytes(b"\xff" * 100)
    os.kill(trial.pid(GPU), signal.SIGKILL)


@row(
    "it is written anew; the resource is there again, or was never away",
    may_register=(CODEC,),
    replaces=None,
    in_a_row=3,
)
async def spool_file_removed(trial: Trial) -> None:
    """A resource's spool file is removed: for a moment there is no such resource."""
    path = spool_file(trial, CODEC)
    path.unlink()
    await trial.until(path.exists, "it is written anew")
    await asyncio.sleep(0.5)  # for the supervisor to end the child, if it has seen it


@row("it is removed again; nobody else notices", in_a_row=3)
async def foreign_file_in_the_spool(trial: Trial) -> None:
    """A file appears in the spool that is none of ours, and one of another resource's content."""
    content = spool_file(trial, GPU).read_bytes()
    paths = []
    for name, text in (("example.com_other", content), ("noise", b"\xff\xfe")):
        path = spool.path_of(trial.settings.resources_directory, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
        paths.append(path)
        await asyncio.sleep(trial.random.uniform(0, 1))
    await trial.until(lambda: not any(path.exists() for path in paths), "both are removed again")
    await asyncio.sleep(0.5)  # for the supervisor to end their children, if it has seen them


async def mount_small_run_directory(trial: Trial) -> None:
    """The herd runs where its run directory is a file system of 2 MiB."""
    trial.has_own_mounts = True
    run_dir = trial.inside.run_dir
    run_dir.mkdir()
    mount = f'mount -t tmpfs -o size=2m,mode=700 none {run_dir} && exec "$@"'
    trial.command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *trial.command)


@row(
    "registrations and allocations go on; the kubelet learns of the failed port: a reserve is given up for that",
    prepare=mount_small_run_directory,
    needs=MOUNTS,
    registers=ALL,
    in_a_row=3,
)
async def disk_full_in_the_run_directory(trial: Trial) -> None:
    """The run directory is full while the kubelet restarts and a port fails; up to 2 s after that there is room."""
    filler = trial.settings.run_dir / "filler"
    fill(filler)
    await trial.kubelet.restart()
    faults.inject(trial.node, "fpga-errors", PORT)
    await trial.until_logged("is full: the reserve of 256 KiB is in use")
    await unhealthy(trial)
    for name in (CRYPTO, GPU):
        await trial.kubelet.until_allocatable(name, len(DEVICES[name]), within=30)
    demand(await trial.kubelet.allocate(GPU, 1, pod="probe"), f"{GPU} cannot be allocated")
    trial.kubelet.free("probe")
    await asyncio.sleep(trial.random.uniform(0, 2))
    filler.unlink()
    faults.clear(trial.node, "fpga-errors", PORT)
    trial.mended()


@row(
    "they start, and register",
    prepare=mount_small_run_directory,
    needs=MOUNTS,
    registers=(GPU,),
    replaces=(GPU, "scanner", "exporter"),
    in_a_row=2,
)
async def children_killed_with_a_full_disk(trial: Trial) -> None:
    """A resource child, scanner and exporter get SIGKILL while the run directory is full; then there is room."""
    await trial.child("exporter")
    filler = trial.settings.run_dir / "filler"
    fill(filler)
    for name in (GPU, "scanner", "exporter"):
        os.kill(trial.pid(name), signal.SIGKILL)
    await trial.kubelet.until_registered(GPU, since=trial._mark, within=30)
    await asyncio.sleep(trial.random.uniform(0, 1))
    filler.unlink()
    trial.mended()


def fill(filler: Path) -> None:
    """Take all room that is left."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


async def take_all_inotify_instances(trial: Trial) -> None:
    """The herd runs where nobody can watch a directory."""
    limit = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    trial.command = ("unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh", *trial.command)


@row(
    "it says so, looks once a second instead, and notices all the same",
    prepare=take_all_inotify_instances,
    needs=MOUNTS,
    registers=ALL,
    in_a_row=3,
)
async def inotify_limit_reached(trial: Trial) -> None:
    """There are no inotify instances from the beginning; the kubelet restarts and a port fails."""
    assert "raise fs.inotify.max_user_instances" in trial.log
    await trial.kubelet.restart()
    for name in ALL:
        await trial.kubelet.until_registered(name, since=trial._mark, within=30)
    faults.inject(trial.node, "fpga-errors", PORT)
    await unhealthy(trial)
    faults.clear(trial.node, "fpga-errors", PORT)
    trial.mended()


@row("nothing but the times that are shown depends on it", registers=ALL, in_a_row=4)
async def clock_jumps(trial: Trial) -> None:
    """The wall clock jumps by up to ten years, either way; then the kubelet restarts and a port fails and heals."""
    (trial.directory / "rig" / "clock").write_text(str(trial.random.uniform(-1, 1) * 10 * 365 * 86400))
    await trial.kubelet.restart()
    for name in ALL:
        await trial.kubelet.until_registered(name, since=trial._mark, within=30)
    faults.inject(trial.node, "fpga-errors", PORT)
    await unhealthy(trial)
    assert await trial.get("/healthz") == 200
    faults.clear(trial.node, "fpga-errors", PORT)
    trial.mended()


def _offers_the_same(path: Path, whole: bytes) -> bool:
    """Whether a file is readable and offers what it did; each writing has a version of its own."""
    try:
        now = spool.read(path, spool_pb2.Resource)
    except (FileNotFoundError, spool.SpoolError):
        return False
    before = spool_pb2.Resource.FromString(whole)
    before.version = now.version
    return now == before
