"""The embedded kubelet as a program: runs until SIGTERM or SIGINT and prints one line for each event."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from devherd.errors import UsageError
from devherd_sim.kubelet.control import KubeletCommands
from devherd_sim.kubelet.events import Kind, KubeletEvent
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.reports import refusal

PARENT_SECONDS = 0.5
"""Seconds between two checks whether the parent still runs."""

_LINES: dict[Kind | str, str] = {
    "started": "takes registrations",
    "stopped": "stopped",
    "register-abandoned": "{resource}: the call of Register ended before the answer",
    "registered": "{resource}: registered, socket {endpoint}",
    "register-refused": "{resource}: refused: {error}",
    "list": "{resource}: list of {healthy} healthy and {unhealthy} unhealthy devices",
    "doubtful": "{resource}: warning: {problem}",
    "stream-ended": "{resource}: stream ended: {error}",
    "disconnected": "{resource}: disconnected, nothing is allocatable until it registers again",
    "forgotten": "{resource}: no plugin came back within the grace period, the resource is gone",
    "checkpoint-ignored": "checkpoint ignored: {error}",
    "checkpoint-failed": "cannot write the checkpoint: {error}",
    "plugin-refused": "{socket}: {error}",
    "plugin-gone": "{socket}: gone",
    "health-forgotten": "{resource}: stream of health ended",
    "allocated": "{resource}: {pod}/{container} gets {devices}",
    "allocation-refused": "{pod}/{container} is rejected: {error}",
    "pre-started": "{resource}: {pod}/{container} is prepared for its start",
    "freed": "pod {pod} is over",
}


def sentence(event: Mapping[str, Any]) -> str | None:
    """The log line of an event in the form of `as_json`; None for an event that the next one repeats in more detail."""
    template = _LINES.get(event["kind"])
    if template is None:
        return None
    words = {name: " ".join(value) if isinstance(value, list) else value for name, value in event.items()}
    if event["kind"] == "register-refused":
        words["error"] = refusal(event["error"], event["socket"], socket_exists=event["socket_exists"])
    return template.format(**words)


def run_until_signal(
    kubelet_dir: Path, print_line: Callable[[str], None], *, end_with_parent: bool = False, **options: Any
) -> None:
    """Run until SIGTERM or SIGINT, or until the parent process ends; `options` are passed to EmbeddedKubelet.

    The sockets stay, as with a real kubelet.

    Raises AlreadyRunningError when a kubelet listens there, UsageError when the directory cannot be used or the options
    are incompatible.
    """
    try:
        parent = os.getppid() if end_with_parent else None
        asyncio.run(_run(EmbeddedKubelet(kubelet_dir, **options), print_line, parent))
    except OSError as error:
        raise UsageError(
            f"cannot run the simulated kubelet in {kubelet_dir}",
            error.strerror or str(error),
            "give a directory of your own with --kubelet-dir",
        ) from error


async def _run(kubelet: EmbeddedKubelet, print_line: Callable[[str], None], parent: int | None) -> None:
    """Run until a signal or, if given, until the process `parent` ends."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    kubelet.events.listen(lambda event: _print(event, print_line))
    control = KubeletCommands(kubelet)
    await kubelet.start()
    try:
        await control.open()
        socket, release = kubelet.paths.kubelet_socket, kubelet.kubernetes
        print_line(f"a plugin may register at {socket}, by the rules of Kubernetes {release}")
        await _until_the_end(stopped, parent)
    finally:
        await control.close()
        await kubelet.stop()


async def _until_the_end(stopped: asyncio.Event, parent: int | None) -> None:
    while not stopped.is_set() and parent in (None, os.getppid()):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), None if parent is None else PARENT_SECONDS)


def _print(event: KubeletEvent, print_line: Callable[[str], None]) -> None:
    text = sentence(event.as_json())
    if text is not None:
        print_line(f"{time.strftime('%H:%M:%S')} {text}")
