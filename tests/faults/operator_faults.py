"""Rows: what operators and node management do to the herd as a whole."""

import asyncio
import os
import shutil
import signal
import time

from host_faults import FUSE, mount_hanging_file, tell_hanging_file, unhealthy
from matrix import row
from trial import ALL, CONFIG, GPU, Trial, child_name, demand

from devherd import spool

CLEAN = "no child outlives it; the next start is clean, and every resource registers again"


@row(CLEAN, registers=ALL, replaces=None, in_a_row=5, share=2)
async def supervisor_killed(trial: Trial) -> None:
    """The supervisor gets SIGKILL; devherd is started again when its children are gone."""
    await trial.stop_herd(signal.SIGKILL)
    await trial.until_gone()
    await restart(trial)


@row(CLEAN, registers=ALL, replaces=None, in_a_row=5)
async def supervisor_killed_and_started_at_once(trial: Trial) -> None:
    """The supervisor gets SIGKILL; devherd is started again without looking for its children."""
    await trial.stop_herd(signal.SIGKILL)
    await restart(trial)


@row("it ends with 0 and leaves nothing behind; the next start is clean", registers=ALL, replaces=None, share=2)
async def sigterm_during_registration(trial: Trial) -> None:
    """A starting devherd gets SIGTERM at any moment of its first second; then another is started."""
    await trial.stop_herd()
    await trial.start_herd()
    await asyncio.sleep(trial.random.uniform(0.05, 1))
    code = await trial.stop_herd()
    demand(code in (0, -signal.SIGTERM), f"SIGTERM: {code}")  # by the signal, before Python has its handlers
    left = sorted(path.name for path in trial.settings.plugin_directory.glob("devherd-*"))
    demand(not left, f"sockets: {left}")
    await trial.until_gone()
    await restart(trial)


@row("it ends with 0 within 10 s and leaves nothing behind", registers=ALL, replaces=None, in_a_row=3)
async def sigterm_while_register_hangs(trial: Trial) -> None:
    """SIGTERM while the kubelet answers no Register; then another is started, the kubelet being well."""
    trial.kubelet.mood.hangs = True
    await trial.kubelet.restart()
    await trial.kubelet.events.wait("register-called", GPU, since=trial._mark)
    began = asyncio.get_running_loop().time()
    demand(await trial.stop_herd() == 0, "it did not end well")
    demand(asyncio.get_running_loop().time() - began < 10, "it took its time")
    await trial.until_gone()
    trial.kubelet.mood.hangs = False
    trial._mark = trial.kubelet.events.mark()
    await restart(trial)


@row(
    "its resource children end cleanly at once; it ends as soon as the read comes back",
    registers=ALL,
    replaces=None,
    prepare=mount_hanging_file,
    needs=FUSE,
    in_a_row=1,
    share=0.3,
)
async def sigterm_while_a_read_hangs(trial: Trial) -> None:
    """SIGTERM while the scanner cannot die; the sockets go; the read comes back; a new one is started."""
    await tell_hanging_file(trial, "hang")
    await unhealthy(trial)
    ending = asyncio.create_task(trial.stop_herd())
    await trial.until(lambda: not list(trial.settings.plugin_directory.glob("devherd-*")), "no socket", timeout=30)
    demand(not ending.done(), "the sockets were there until its end")
    await asyncio.sleep(trial.random.uniform(0, 1))
    await tell_hanging_file(trial, "flow")
    demand(await ending == 0, "it did not end well")
    await restart(trial)


@row(
    "it ends with 0 within 10 s, says whom it leaves behind, and the next start is clean",
    registers=ALL,
    replaces=None,
    prepare=mount_hanging_file,
    needs=FUSE,
    in_a_row=1,
    share=0.1,
)
async def sigterm_while_a_read_hangs_for_good(trial: Trial) -> None:
    """SIGTERM while the scanner cannot die; the read comes back once devherd has ended; a new one is started."""
    await tell_hanging_file(trial, "hang")
    await unhealthy(trial)
    began = time.monotonic()
    demand(await trial.stop_herd() == 0, "it did not end well")
    demand(time.monotonic() - began < 10, "it waited for long")
    demand(
        "is left behind: in uninterruptible sleep (state D)" in trial.log_since, "it did not say whom it left behind"
    )
    await tell_hanging_file(trial, "flow")
    await restart(trial)


@row(
    "the pods keep their devices; every resource registers again, on sockets of new names", registers=ALL, replaces=None
)
async def run_directory_lost(trial: Trial) -> None:
    """The supervisor gets SIGTERM, the run directory is removed, and devherd starts again."""
    demand(await trial.stop_herd() == 0, "the old one did not end well")
    shutil.rmtree(trial.settings.run_dir)
    await restart(trial)
    await demand_new_names(trial)


@row(
    "the pods keep their devices; every resource registers again, on sockets of new names",
    registers=ALL,
    replaces=None,
    share=2,
)
async def rolling_update(trial: Trial) -> None:
    """A new devherd stands by beside the old one, which then gets SIGTERM, or in one of four times SIGKILL."""
    old = trial.herd
    await stand_by(trial)
    await asyncio.sleep(trial.random.uniform(0, 0.3))
    trial.mended()
    number = trial.random.choice([signal.SIGKILL, *[signal.SIGTERM] * 3])
    old.send_signal(number)
    code = await asyncio.wait_for(old.wait(), 20)
    demand(code == (0 if number == signal.SIGTERM else -number), f"the old one ended with {code}")
    await demand_new_names(trial)


@row("nobody notices; the one that runs goes on", is_silent=True)
async def standby_killed(trial: Trial) -> None:
    """A new devherd starts beside the one that runs, and at any moment of its first 3 s gets SIGTERM or SIGKILL."""
    old = trial.herd
    await trial.start_herd("--take-over")
    new, trial.herd = trial.herd, old
    await asyncio.sleep(trial.random.uniform(0, 3))
    number = trial.random.choice([signal.SIGTERM, signal.SIGKILL])
    new.send_signal(number)
    code = await asyncio.wait_for(new.wait(), 20)
    demand(code in (0, -number), f"it ended with {code}")
    trial.mended()


@row("it ends with exit code 3, and the first one is not disturbed", in_a_row=5)
async def second_instance(trial: Trial) -> None:
    """A second devherd is started, on the same run directory or on another one."""
    elsewhere = trial.directory / "run2"
    run_dir = trial.random.choice([trial.settings.run_dir, elsewhere])
    command = (
        *trial.command,
        "run",
        f"--run-dir={run_dir}",
        f"--kubelet-dir={trial.settings.kubelet_dir}",
        "--listen=",
    )
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    code = await asyncio.wait_for(process.wait(), 30)
    demand(code == 3, f"exit code {code}")
    shutil.rmtree(elsewhere, ignore_errors=True)


@row("every allocation succeeds, and nothing registers again; what is bad is said", in_a_row=2)
async def reloads_during_allocations(trial: Trial) -> None:
    """Ten reloads of good and bad configurations, one resource coming and going, while pods come and go."""
    ended = asyncio.Event()
    pods = asyncio.create_task(come_and_go(trial, ended))
    other = {"name": "example.com/other", "count": 1}
    for number in range(10):
        config = [CONFIG | {"simulated": [*CONFIG["simulated"], other]}, {"simulatde": []}, CONFIG][number % 3]
        trial.configure(config)
        os.kill(trial.herd.pid, signal.SIGHUP)
        if number == 1:  # later ones may be replaced before they are read
            await trial.until_logged("simulatde: unknown key")
        await asyncio.sleep(trial.random.uniform(0, 0.3))
    last = "example.com/last"
    trial.configure(CONFIG | {"simulated": [*CONFIG["simulated"], {"name": last, "count": 1}]})
    os.kill(trial.herd.pid, signal.SIGHUP)
    await trial.until(lambda: child_name(last) in trial.children(), "every reload before the last one is over")
    trial.configure(CONFIG)
    os.kill(trial.herd.pid, signal.SIGHUP)
    ended.set()
    await pods
    trial.mended()


async def come_and_go(trial: Trial, ended: asyncio.Event) -> None:
    """Pods that ask for a device and end, ten at least. Raises AdmissionError when one is refused."""
    count = 0
    while not ended.is_set() or count < 10:
        count += 1
        demand(await trial.kubelet.allocate(GPU, 1, pod=f"pod-{count}"), "a pod was started without its device")
        await asyncio.sleep(0.01)
        trial.kubelet.free(f"pod-{count}")


@row("they are written again", in_a_row=3)
async def state_files_removed(trial: Trial) -> None:
    """Somebody removes what children and supervisor tell of themselves, and the summary of the scan."""
    states = [spool.path_of(trial.settings.state_directory, spool.key_of(name)) for name in ALL]
    removed = [*states, trial.settings.scan_file, trial.settings.children_file]
    for path in removed:
        path.unlink(missing_ok=True)
    await trial.until(lambda: all(path.exists() for path in removed), "they are there")


async def stand_by(trial: Trial) -> None:
    """Start one more devherd, which waits for the end of the one that runs; from now on it is the trial's."""
    await trial.start_herd("--take-over")
    await trial.until_logged("standing by: ")


async def demand_new_names(trial: Trial) -> None:
    """All register again, on sockets whose names the kubelet does not know. Raises NotHealedError."""
    for resource in ALL:
        await trial.kubelet.until_registered(resource, since=trial._mark, within=30)
    names = [event.detail["endpoint"] for event in trial.kubelet.events.since(0, "register-called")]
    new = {event.detail["endpoint"] for event in trial.kubelet.events.since(trial._mark, "register-called")}
    again = [name for name in new if names.count(name) > 1]
    demand(not again, f"names used again: {again}")


async def restart(trial: Trial) -> None:
    """Start devherd; times count from here."""
    trial.mended()
    await trial.start_herd()
