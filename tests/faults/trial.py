"""One herd under fault: a testbed that knows when it has healed, and whether anything is lost or left behind."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from moody_kubelet import MoodyKubelet

from devherd import spool
from devherd.proto import health_pb2, spool_pb2
from devherd.settings import Settings
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"
GPU = "example.com/gpu"
DEVICES = {CRYPTO: ["intel-fpga-port.0"], CODEC: ["intel-fpga-port.1"], GPU: [f"gpu-{number}" for number in range(4)]}
ALL = tuple(DEVICES)
CONFIG = {
    "scan": {"period": "500ms"},
    "health": {"poll": "100ms", "recover_after": 2, "flapping": False},  # faults are played many times in a row
    "simulated": [{"name": GPU, "count": 4}],
}
HELD = [(CRYPTO, 1, "train"), (GPU, 2, "render")]
"""What pods hold from the beginning on: resource, devices, pod."""

LEFT_IN_THE_RUN_DIRECTORY = {
    "config.json", "counts.pb", "devices.pb", "config-warnings.pb", "facts", "findings", "history",
    "http", "instance.pb", "kubernetes", "lock", "logs", "offers", "offers.pb", "requests", "reserve", "scan.pb",
    "scanner.pb", "standby.pb", "state", "supervisord.conf", "verdicts.pb",
}  # fmt: skip
PATIENCE_SECONDS = 40.0
_LOOK_SECONDS = 0.01
_SPARE_DESCRIPTORS = 3  # a connection or a file that is open just now


class NotHealedError(Exception):
    """A registration, a device, an allocation or a process is lost, or something was left behind."""


class Trial(Testbed):
    """A herd with three resources of which pods hold devices. `random` decides the delays."""

    def __init__(self, directory: Path, random: Random) -> None:
        super().__init__(directory, preset("fpga-opae-2"), CONFIG)
        self.random = random
        self.inside = self.settings
        """Where things are for the herd; from outside they may be seen elsewhere (`settings`)."""
        self.kubelet = MoodyKubelet(self.settings.kubelet_dir)
        self.command = (sys.executable, str(Path(__file__).with_name("rigged_devherd.py")), str(directory))
        self.has_own_mounts = False
        self.mended_at = 0.0
        self.ended_as_told = True
        self.devices = {name: dict.fromkeys(ids, "Healthy") for name, ids in DEVICES.items()}
        """What the kubelet is to have; a row that prepares more of the node adds to it."""
        self.sources: set[str] = set()
        """Children that are sources of health."""
        self.helpers: set[int] = set()
        """Processes that a row has started itself."""
        self._mark = self._log_mark = 0
        self._before: dict[str, int] = {}
        self._descriptors: dict[int, int] = {}

    def configure(self, config: dict[str, Any]) -> None:
        """Put a file in place: an empty one is a good configuration, and one that is half written may be empty."""
        place = self.directory / "config.yaml"
        place.with_suffix(".new").write_text(json.dumps(config))
        place.with_suffix(".new").rename(place)

    def change_config(self, **sections: dict[str, Any]) -> None:
        """Before the herd starts: more keys in sections of the configuration."""
        self.configure(CONFIG | {name: CONFIG.get(name, {}) | more for name, more in sections.items()})

    async def start_herd(self, *more: str) -> float:
        """As a testbed does; a herd that has mounts of its own has its run directory seen with its eyes."""
        self.settings = self.inside
        started = await super().start_herd(*more)
        if self.has_own_mounts:
            root = Path(f"/proc/{self.herd.pid}/root")
            self.settings = replace(self.inside, run_dir=root / self.inside.run_dir.relative_to("/"))
        return started

    async def begin(self) -> None:
        """Everything registered, pods hold devices."""
        await self.until_healed(ALL, None)
        for resource, count, pod in HELD:
            await self.kubelet.allocate(resource, count, pod=pod)
        await self.child("exporter")
        self._descriptors = {pid: descriptors(pid) for pid in self.pids().values()}

    async def before(self) -> None:
        """Remember how things are, and let a random time pass."""
        self._mark, self._log_mark = self.kubelet.events.mark(), len(self.log)
        self._before = self.pids()
        await asyncio.sleep(self.random.uniform(0, 0.3))
        self.mended_at = time.monotonic()

    def mended(self) -> None:
        """From now on it could heal: what comes before does not count as time to heal."""
        self.mended_at = time.monotonic()

    def pids(self) -> dict[str, int]:
        """Supervisor and children that have a process."""
        supervisor = {"supervisor": self.herd.pid} if self.herd else {}
        return supervisor | {child.name: child.pid for child in self.children().values() if child.pid}

    def pid(self, name: str) -> int:
        """Of a child, or of the one that serves a resource."""
        pid = self.pids().get(child_name(name))
        demand(pid, f"{name} does not run")  # os.kill(0, …) would be the end of the test itself
        return pid

    @property
    def log_since(self) -> str:
        """What the herd has logged since `before`."""
        return self.log[self._log_mark :]

    async def ctl(self, *words: str) -> str:
        """What supervisorctl prints."""
        command = (Path(sys.executable).with_name("supervisorctl"), "-c", self.settings.supervisord_conf, *words)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    async def get(self, path: str) -> int:
        """Status of a page of the exporter, 0 when nobody answers."""
        return await asyncio.to_thread(_status, f"http://{self.settings.listen}{path}")

    async def until_logged(self, text: str) -> None:
        """Wait for a line of the herd's log."""
        await self.until(lambda: text in self.log_since, f"`{text}` in the log", timeout=30)

    async def until_healed(self, registers: tuple[str, ...], replaces: tuple[str, ...] | None) -> float:
        """Seconds from `mended` until nothing is missing. Raises NotHealedError saying what still is."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while missing := self.missing(registers, replaces):
            if time.monotonic() > deadline:
                raise NotHealedError(f"after {PATIENCE_SECONDS:.0f} s still {missing}")
            await asyncio.sleep(_LOOK_SECONDS)
        return max(0.0, time.monotonic() - self.mended_at)

    def missing(self, registers: tuple[str, ...], replaces: tuple[str, ...] | None) -> str:
        """What is not as it should be; empty when all is."""
        for resource in registers:
            if not self.kubelet.events.since(self._mark, "registered", resource):
                return f"{resource} has not registered again"
        for resource, health in self.devices.items():
            if self.kubelet.devices(resource) != health:
                return f"{resource} has {self.kubelet.devices(resource)}"
        return self._missing_children(replaces) or self._missing_state() or self._missing_sources()

    def _missing_children(self, replaces: tuple[str, ...] | None) -> str:
        children = self.children()
        resources = {f"resource:{spool.key_of(name)}" for name in self.devices}
        if set(children) != {"scanner", "exporter", *self.sources, *resources}:
            return f"the children are {sorted(children)}"
        idle = {child.name: child.state for child in children.values() if child.state != "RUNNING"}
        if idle:
            return f"not running: {idle}"
        same = [name for name in map(child_name, replaces or ()) if children[name].pid == self._before.get(name)]
        return f"{same} not replaced" if same else ""

    def _missing_state(self) -> str:
        for resource in self.devices:
            path = spool.path_of(self.settings.state_directory, spool.key_of(resource))
            try:
                state = spool.read(path, spool_pb2.ResourceState)
            except (OSError, spool.SpoolError) as error:
                return str(error)
            socket = self.settings.socket_directory / state.endpoint
            if not state.registered or state.streams != 1 or not socket.is_socket():
                return f"{resource} says: {state.detail or state}"
        return ""

    def _missing_sources(self) -> str:
        failed = self.failed_sources()
        return f"sources that fail: {failed}" if failed else ""

    def failed_sources(self) -> dict[str, str]:
        """Why sources cannot check, as `devherd explain` has it."""
        verdicts = spool.read_or_empty(self.settings.verdicts_file, health_pb2.Verdicts)
        return {source.source: source.failed for source in verdicts.sources if source.failed}

    async def audit(self, registers: tuple[str, ...], replaces: tuple[str, ...] | None, excused: str) -> None:
        """Nothing lost, nobody disturbed, nothing left behind. Raises NotHealedError."""
        for resource in set(self.devices) - set(registers):
            disturbed = [
                event
                for kind in ("register-called", "stream-ended", "disconnected")
                for event in self.kubelet.events.since(self._mark, kind, resource)
            ]
            demand(not disturbed, f"{resource} was disturbed: {disturbed}")
        if replaces is not None:
            exempt = {child_name(name) for name in replaces}
            kept = {name: pid for name, pid in self._before.items() if name not in exempt}
            demand(kept.items() <= self.pids().items(), f"were {kept}, are {self.pids()}")
        demand(self._held() == {(pod, resource, count) for resource, count, pod in HELD}, f"pods hold {self._held()}")
        for resource in (CODEC, GPU):
            demand(await self.kubelet.allocate(resource, 1, pod="probe"), f"{resource} cannot be allocated")
        self.kubelet.free("probe")
        await self.until(lambda: len(self.sockets(self.settings)) == len(self.devices), "each resource has one socket")
        await self._until_no_temporaries()
        demand(bool(excused) or "Traceback" not in self.log_since, self.log_since)

    def sockets(self, settings: Settings) -> list[Path]:
        """All of ours, wherever they are."""
        return [path for directory in settings.socket_directories for path in sorted(directory.glob("devherd-*"))]

    def demand_silence(self) -> None:
        """No list was sent. Raises NotHealedError."""
        lists = [event for name in self.devices for event in self.kubelet.events.since(self._mark, "list", name)]
        demand(not lists, f"lists: {lists}")

    def _held(self) -> set[tuple[str, str, int]]:
        return {(one.container.pod, one.resource, len(one.device_ids)) for one in self.kubelet.allocations()}

    async def _until_no_temporaries(self) -> None:
        for _ in range(200):  # somebody may be writing just now
            if not self._temporaries():
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise NotHealedError(f"temporaries: {self._temporaries()}")

    def _temporaries(self) -> list[str]:
        found = [
            path for path in self.settings.run_dir.rglob("*") if path.name.startswith(".") or path.suffix == ".new"
        ]
        return [str(path) for path in found if path.exists()]

    def processes(self) -> list[int]:
        """What runs of the herd, by whichever parent."""
        return [pid for pid in processes_of(self.directory) if pid not in self.helpers]

    async def until_gone(self) -> None:
        """No process of the herd is left; the kernel takes a moment to end the children of one that was killed."""
        for _ in range(300):
            if not self.processes():
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise NotHealedError(f"processes: {self.processes()}")

    async def end(self) -> None:
        """Stop the herd; nothing of it is left but what the next start wants. Raises NotHealedError."""
        grown = {
            name: (self._descriptors[pid], descriptors(pid))
            for name, pid in self.pids().items()
            if descriptors(pid) > self._descriptors.get(pid, 1 << 20) + _SPARE_DESCRIPTORS
        }
        demand(not grown, f"open descriptors before and now: {grown}")
        code = await self.stop_herd()
        demand(code == 0 or not self.ended_as_told, f"the herd ended with {code}\n{self.log[-2000:]}")
        await self.until_gone()
        sockets = self.sockets(self.inside)
        demand(not sockets, f"sockets: {sockets}")
        if self.settings is self.inside:
            names = {path.name for path in self.inside.run_dir.iterdir()}
            demand(names <= LEFT_IN_THE_RUN_DIRECTORY, f"in the run directory: {names - LEFT_IN_THE_RUN_DIRECTORY}")


def demand(condition: object, otherwise: str) -> None:
    """An assertion that the long run counts instead of ending with it."""
    if not condition:
        raise NotHealedError(otherwise)


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def child_name(name: str) -> str:
    """The child that serves a resource; of a child, itself."""
    return f"resource:{spool.key_of(name)}" if "/" in name else name


def descriptors(pid: int) -> int:
    """How many a process has open; 0 when it has gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def processes_of(directory: Path) -> list[int]:
    """Processes that run on a testbed's directory."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal() or int(place.name) == os.getpid():
            continue
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(directory) + b"/" in words:
            found.append(int(place.name))
    return found
