"""Rows: what a kubelet does to its plugins."""

import asyncio
import os
import shutil
import signal
import sys
from dataclasses import replace

from host_faults import MOUNTS
from matrix import row
from trial import ALL, CODEC, CONFIG, CRYPTO, GPU, Trial, demand

CHECKPOINT = "kubelet_internal_checkpoint"
AGAIN = "every resource registers again"
ANEW = "every resource registers again from a new process, whose sandbox has the new directory"


@row(AGAIN, registers=ALL, in_a_row=10, share=4, short=3)
async def kubelet_restarted_quickly(trial: Trial) -> None:
    """The kubelet stops and the next one is there at once."""
    await trial.kubelet.restart()
    trial.mended()


@row(AGAIN, registers=ALL, in_a_row=5)
async def kubelet_restarted_slowly(trial: Trial) -> None:
    """The kubelet stops, leaves its socket behind, and is back after up to 3 s."""
    await trial.kubelet.stop()
    await asyncio.sleep(trial.random.uniform(0.5, 3))
    await trial.kubelet.start()
    trial.mended()


@row(AGAIN, registers=ALL)
async def kubelet_stopped_and_its_socket_removed(trial: Trial) -> None:
    """The kubelet stops and takes its sockets along; the next one comes after up to 1 s."""
    await trial.kubelet.stop(clean=True)
    await asyncio.sleep(trial.random.uniform(0, 1))
    await trial.kubelet.start()
    trial.mended()


@row(AGAIN, registers=ALL)
async def kubelet_restarted_with_the_same_inode(trial: Trial) -> None:
    """The next kubelet's socket has the inode number of the last one's; only its change time differs."""
    inode = trial.settings.kubelet_socket.stat().st_ino
    await trial.kubelet.restart()
    if trial.settings.kubelet_socket.stat().st_ino != inode:
        await trial.kubelet.stop()  # this file system gives out fresh numbers: keep the file, change its times
        trial.settings.kubelet_socket.touch()
        await trial.kubelet.start()
    trial.mended()


@row(AGAIN, registers=ALL, in_a_row=3, share=0.5)
async def kubelet_killed(trial: Trial) -> None:
    """A kubelet that is a process of its own gets SIGKILL, at any moment of the registrations; another one follows."""
    await trial.kubelet.stop()
    command = (sys.executable, "-m", "devherd", "sim", "kubelet", "--kubelet-dir", str(trial.settings.kubelet_dir))
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    await trial.until(lambda: "registered " in trial.log_since or process.returncode is not None, "one registers", 30)
    await asyncio.sleep(trial.random.uniform(0, 0.1))
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await trial.kubelet.start()
    trial.mended()


@row("the resource registers again, the others are not disturbed", registers=(CRYPTO,), in_a_row=3)
async def stream_cut(trial: Trial) -> None:
    """The kubelet ends the ListAndWatch stream of one resource."""
    await trial.kubelet.let_go(CRYPTO)


@row("the resource registers again, the others are not disturbed", registers=(CODEC,), in_a_row=3)
async def own_socket_removed(trial: Trial) -> None:
    """Somebody unlinks the socket of one resource."""
    trial.kubelet.socket_of(CODEC).unlink()


@row(AGAIN, registers=ALL, in_a_row=3)
async def all_sockets_removed(trial: Trial) -> None:
    """Somebody unlinks every socket of ours."""
    for path in trial.settings.plugin_directory.glob("devherd-*.sock"):
        path.unlink()


def remove_plugin_directory(trial: Trial) -> bytes:
    """With all in it; the kubelet's checkpoint, without which it would forget its pods, is brought back later."""
    checkpoint = (trial.settings.plugin_directory / CHECKPOINT).read_bytes()
    while trial.settings.plugin_directory.exists():  # others remove sockets meanwhile
        shutil.rmtree(trial.settings.plugin_directory, ignore_errors=True)
    return checkpoint


def make_plugin_directory(trial: Trial, checkpoint: bytes) -> None:
    """Empty but for the checkpoint."""
    trial.settings.plugin_directory.mkdir(exist_ok=True)
    (trial.settings.plugin_directory / CHECKPOINT).write_bytes(checkpoint)


@row(ANEW, registers=ALL, replaces=ALL)
async def plugin_directory_removed_and_made_again(trial: Trial) -> None:
    """The plugin directory is removed with all in it, with the kubelet down, which makes it again when it starts."""
    await trial.kubelet.stop(clean=True)
    checkpoint = remove_plugin_directory(trial)
    await asyncio.sleep(trial.random.uniform(0, 1.5))
    make_plugin_directory(trial, checkpoint)
    await trial.kubelet.start()
    trial.mended()


@row(ANEW, registers=ALL, replaces=ALL, in_a_row=3)
async def plugin_directory_removed_under_a_running_kubelet(trial: Trial) -> None:
    """The plugin directory is removed with all in it while the kubelet runs; it is restarted later."""
    checkpoint = remove_plugin_directory(trial)
    await asyncio.sleep(trial.random.uniform(0, 1))
    await trial.kubelet.stop()
    make_plugin_directory(trial, checkpoint)
    await trial.kubelet.start()
    trial.mended()


async def bind_kubelet_directories(trial: Trial) -> None:
    """The herd sees the kubelet's directories as a pod does: each bound by itself, from its start on."""
    kubelet, pod = trial.inside.kubelet_dir, trial.directory / "pod"
    bound = ("device-plugins", "pod-resources")
    for name in bound:
        (pod / name).mkdir(parents=True)
    mounts = " && ".join(f"mount --bind {kubelet / name} {pod / name}" for name in bound)
    script = f'{mounts} && mount --rbind {pod} {kubelet} && exec "$@"'
    trial.command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *trial.command)


@row(
    "the instance says so and ends with 1, to be started again as a pod's container is; every resource registers again",
    prepare=bind_kubelet_directories,
    needs=MOUNTS,
    registers=ALL,
    replaces=None,
    in_a_row=3,
)
async def kubelet_directories_of_a_pod_made_again(trial: Trial) -> None:
    """In a pod: what is bound of the kubelet's directory is removed with the kubelet down, which makes it again."""
    await trial.kubelet.stop(clean=True)
    checkpoint = remove_plugin_directory(trial)
    shutil.rmtree(trial.settings.pod_resources_socket.parent)
    await asyncio.sleep(trial.random.uniform(0, 1.5))
    make_plugin_directory(trial, checkpoint)
    await trial.kubelet.start()
    code = await asyncio.wait_for(trial.herd.wait(), 20)
    demand(code == 1, f"it ended with {code}")
    demand(f"devherd: removed on the host: {trial.settings.plugin_directory}" in trial.log_since, trial.log_since)
    await trial.start_herd()
    trial.mended()


@row(AGAIN, registers=ALL, in_a_row=2)
async def register_refused(trial: Trial) -> None:
    """The next kubelet refuses every Register for up to 2 s."""
    trial.kubelet.mood.refusal = "not now"
    await trial.kubelet.restart()
    await asyncio.sleep(trial.random.uniform(0.3, 2))
    trial.kubelet.mood.refusal = ""
    trial.mended()


@row(AGAIN, registers=ALL)
async def register_slow(trial: Trial) -> None:
    """Register takes up to 2 s before the kubelet dials back."""
    trial.kubelet.mood.delay = trial.random.uniform(0.2, 2)
    await trial.kubelet.restart()
    trial.mended()


@row(AGAIN, registers=ALL, in_a_row=2)
async def register_hangs_and_the_kubelet_is_restarted(trial: Trial) -> None:
    """Register is never answered; after up to 1 s the kubelet is restarted and answers."""
    trial.kubelet.mood.hangs = True
    await trial.kubelet.restart()
    await trial.kubelet.events.wait("register-called", GPU, since=trial.kubelet.events.mark() - 1)
    await asyncio.sleep(trial.random.uniform(0, 1))
    trial.kubelet.mood.hangs = False
    await trial.kubelet.restart()
    trial.mended()


@row("the calls are given up after 15 s and made again", registers=ALL, in_a_row=1, share=0.1)
async def register_hangs(trial: Trial) -> None:
    """The first calls of Register are never answered, later ones would be."""
    trial.kubelet.mood.hangs = True
    await trial.kubelet.restart()
    await trial.kubelet.events.wait("register-called", GPU, since=trial.kubelet.events.mark() - 1)
    trial.kubelet.mood.hangs = False


async def be_found(trial: Trial) -> None:
    """The herd waits in plugins_registry."""
    trial.configure(CONFIG | {"registration": "plugins_registry"})
    trial.inside = trial.settings = replace(trial.settings, registration="plugins_registry")


@row("every resource is found again", registers=ALL, prepare=be_found)
async def plugins_registry_and_the_kubelet_restarted(trial: Trial) -> None:
    """Resources wait in plugins_registry; the kubelet stops and the next one comes after up to 1 s."""
    await trial.kubelet.stop()
    await asyncio.sleep(trial.random.uniform(0, 1))
    await trial.kubelet.start()
    trial.mended()


@row("every resource is found again", registers=ALL, prepare=be_found, in_a_row=3)
async def plugins_registry_and_all_sockets_removed(trial: Trial) -> None:
    """Resources wait in plugins_registry, and somebody unlinks every socket there."""
    for path in trial.settings.plugins_registry.glob("devherd-*.sock"):
        path.unlink()


@row(
    "it is found again from a new process, the others are not disturbed",
    registers=(CRYPTO,),
    replaces=(CRYPTO,),
    prepare=be_found,
)
async def plugins_registry_and_a_child_killed(trial: Trial) -> None:
    """Resources wait in plugins_registry, and the child of one gets SIGKILL."""
    os.kill(trial.pid(CRYPTO), signal.SIGKILL)
