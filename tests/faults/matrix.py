"""The fault matrix: what a row is, and how it is played."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import scratch
from trial import Trial

Inject = Callable[[Trial], Awaitable[None]]


@dataclass(frozen=True)
class Row:
    """One fault. Whatever it is, at the end all is registered with the right lists and the pods hold what they held."""

    name: str
    injected: str
    holds: str
    inject: Inject
    registers: tuple[str, ...] = ()
    """Resources that must register again; for the others the kubelet must not notice anything."""
    may_register: tuple[str, ...] = ()
    """Resources for which either is right."""
    replaces: tuple[str, ...] | None = ()
    """Children (or the resources they serve) that must be other processes then; all others the same. None: whoever."""
    prepare: Inject | None = None
    """Before the herd starts."""
    needs: str = ""
    """A command that succeeds where the fault can be injected."""
    is_silent: bool = False
    """The kubelet is sent no list at all: no device changes, not even for a moment."""
    excused: str = ""
    """Why a traceback in the log is right."""
    in_a_row: int = 5
    """Times on one herd: few where back-offs add up."""
    share: float = 1.0
    """Of the attempts in a long run; slow ones get less."""
    short: int = 1
    """Times in `make test-all`."""

    def obstacle(self) -> str:
        """Why it cannot be played on this machine; empty when it can."""
        if not self.needs:
            return ""
        tried = subprocess.run(self.needs, shell=True, capture_output=True, text=True, check=False)
        return f"`{self.needs}`: {tried.stderr.strip()}" if tried.returncode else ""


ROWS: dict[str, Row] = {}


def row(holds: str, **options: object) -> Callable[[Inject], Inject]:
    """Makes a row of a function: its docstring is what is injected, its name the row's."""

    def add(inject: Inject) -> Inject:
        name = inject.__name__.replace("_", " ")
        ROWS[name] = Row(name, " ".join((inject.__doc__ or "").split()), holds, inject, **options)
        return inject

    return add


@dataclass
class Figures:
    """What came of a row."""

    attempts: int = 0
    healed: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Attempts that did not heal."""
        return self.attempts - len(self.healed)


async def play(wanted: Row, attempts: int, seed: str, stop_at: float = float("inf")) -> Figures:
    """Play a row so often, on a fresh herd now and then, no longer than until a monotonic time."""
    figures = Figures()
    while figures.attempts < attempts and time.monotonic() < stop_at:
        count = min(wanted.in_a_row, attempts - figures.attempts)
        with _directory() as directory:
            await _play_on_one_herd(
                wanted, count, Random(f"{seed}/{wanted.name}/{figures.attempts}"), directory, figures
            )
    return figures


async def _play_on_one_herd(wanted: Row, count: int, random: Random, directory: Path, figures: Figures) -> None:
    trial = Trial(directory, random)
    attempted, healed = 0, []
    try:
        async with contextlib.AsyncExitStack() as stack:
            trial.stack = stack
            if wanted.prepare:
                await wanted.prepare(trial)
            await stack.enter_async_context(trial)
            await trial.begin()
            while attempted < count:
                attempted += 1
                healed.append(await _once(wanted, trial))
            await trial.end()
    except Exception as error:  # noqa: BLE001 - the long run goes on, the failure is printed
        figures.failures.append(f"{wanted.name}: {type(error).__name__}: {error}\n--- log\n{trial.log[-3000:]}")
        attempted, healed = max(1, attempted), healed[: attempted - 1]
    figures.attempts += attempted
    figures.healed += healed


async def _once(wanted: Row, trial: Trial) -> float:
    await trial.before()
    await wanted.inject(trial)
    seconds = await trial.until_healed(wanted.registers, wanted.replaces)
    await trial.audit(wanted.registers + wanted.may_register, wanted.replaces, wanted.excused)
    if wanted.is_silent:
        trial.demand_silence()
    return seconds


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """One with a path short enough for sockets."""
    path = scratch.directory("dhf")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
