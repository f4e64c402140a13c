"""The answer to one request: whether devices are free and healthy, and the results of programs that check them.

Runs in a separate process, because a program may hang: `RunningProgram` ends all children of its process.
"""

import logging
import shlex
import time
from collections.abc import Collection, Sequence

from devherd import spool
from devherd.inventory import DeviceKey, key_of
from devherd.ledger.processes import NotSeenError, Opened, opened, own_nodes
from devherd.process import LONGEST_PRE_START_SECONDS, SOURCE_MARK
from devherd.proto import devices_pb2, spool_pb2
from devherd.settings import Settings
from devherd.sources.program import NotStartedError, ProgramStderr, how_it_ended, started
from devherd.sources.report import LONGEST_DETAIL, plain

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""Time between two looks while a start waits."""
_MOST_OUTPUT = 65_536
Named = tuple[str, spool_pb2.Device]
"""A device with the id under which the kubelet has it."""


class Checks:
    """Checks what the rules of these devices require before a container of this resource starts."""

    def __init__(self, settings: Settings, resource_name: str, devices: Sequence[Named], supervisor: int) -> None:
        self._settings = settings
        self._resource_name = resource_name
        self._devices = devices
        self._supervisor = supervisor
        self._until = time.monotonic() + LONGEST_PRE_START_SECONDS
        self.has_confirmed = False
        """True if programs have run, and each has ended with 0."""

    def run(self, ignore: Collection[str], suspects: Collection[DeviceKey], process: int) -> tuple[str, str]:
        """Why the container may not start, and what was done; each empty if there is nothing.

        `process`: the id of process `pre-start`, by which the supervisor finds processes that a program leaves behind.
        """
        began = time.monotonic()
        time_of_programs = max(
            (one.pre_start.timeout_seconds for _, one in self._devices if one.pre_start.program), default=0
        )
        if refusal := self._wait(ignore, self._until - time_of_programs):
            return refusal, ""
        waited = time.monotonic() - began
        done = [f"waited {waited:.1f} s for it to be free"] if waited >= 2 * LOOK_SECONDS else []
        programs = {tuple(one.pre_start.program): one.pre_start for _, one in self._devices if one.pre_start.program}
        for command, pre_start in programs.items():
            examined = [
                (device_id, one)
                for device_id, one in self._devices
                if tuple(one.pre_start.program) == command
                and (pre_start.when == "always" or _is_suspect(one, suspects))
            ]
            if examined:
                refusal, output = self._run(command, pre_start.timeout_seconds, examined, process)
                if refusal:
                    self.has_confirmed = False
                    return refusal, ""
                done.append(f"{_named(command)} ended with 0{output}")
                self.has_confirmed = True
        return "", "; ".join(done)

    def _wait(self, ignore: Collection[str], until: float) -> str:
        """Why the devices are not free and well; waits for those that may be waited for."""
        while True:
            refused = self._unhealthy() + self._occupied(ignore)
            if not refused:
                return ""
            may_wait = all(is_waiting for is_waiting, _ in refused)
            if not may_wait or time.monotonic() + LOOK_SECONDS > until:
                texts = dict.fromkeys(text for is_waiting, text in refused if not is_waiting or may_wait)
                return "; ".join([*texts][:3])
            time.sleep(LOOK_SECONDS)

    def _unhealthy(self) -> list[tuple[bool, str]]:
        wanted = {device_id: one.pre_start.unhealthy for device_id, one in self._devices if one.pre_start.unhealthy}
        if not wanted:
            return []
        offers = spool.resources_in(spool.read_or_empty(self._settings.offers_file, spool_pb2.Offers))
        now = {
            device_id: one
            for offer in offers
            if offer.name == self._resource_name
            for device_id, one in spool.listed(offer)
        }
        return [
            (word == "wait", f"device {device_id!r} is unhealthy: {', '.join(now[device_id].reasons)}")
            for device_id, word in wanted.items()
            if device_id in now and now[device_id].reasons
        ]

    def _occupied(self, ignore: Collection[str]) -> list[tuple[bool, str]]:
        wanted = {
            key_of(one): (device_id, one.pre_start.occupied)
            for device_id, one in self._devices
            if one.pre_start.occupied
        }
        if not wanted:
            return []
        inventory = spool.read_or_empty(self._settings.devices_file, devices_pb2.Inventory)
        nodes = {
            number: (*wanted[key], path)
            for number, (key, path) in own_nodes(inventory, self._settings.host_root).items()
            if key in wanted
        }
        try:
            processes = opened(nodes, ignore, self._supervisor)
        except NotSeenError as error:
            return [(False, f"nobody can say whether the device is in use: {error}")]
        return [(nodes[one.number][1] == "wait", _held(*nodes[one.number], one)) for one in processes]

    def _run(self, command: Sequence[str], timeout: float, examined: Sequence[Named], process: int) -> tuple[str, str]:
        """Run a program. Returns why the container may not start, or otherwise the output of the program."""
        stderr, output = ProgramStderr(), bytearray()
        ends_at = min(self._until, time.monotonic() + timeout)
        try:
            program = started(command, stderr, self._environment(examined) | {SOURCE_MARK: str(process)})
        except NotStartedError as error:
            return str(error), ""
        status = None
        while status is None and time.monotonic() < ends_at and len(output) <= _MOST_OUTPUT:
            output += program.read(max(0.0, min(LOOK_SECONDS, ends_at - time.monotonic())))
            status = program.exit_status()
        name = _named(command)
        if not program.end()[0]:
            return f"{name} cannot be ended: it sleeps in the kernel (state D)", ""
        output += program.rest()
        printed = plain(bytes(output[:_MOST_OUTPUT]).decode(errors="replace"), LONGEST_DETAIL) or stderr.last
        said = f": {printed}" if printed else ""
        if len(output) > _MOST_OUTPUT:
            return f"{name} printed more than {_MOST_OUTPUT} bytes", ""
        if status is None:
            return f"{name} took longer than {timeout:g} s{said}", ""
        if status:
            return f"{name}: {how_it_ended(status)}{said}", ""
        log.info("%s ended with 0%s", name, said)
        return "", said

    def _environment(self, examined: Sequence[Named]) -> dict[str, str]:
        """The environment variables that describe the devices to a program; list items are separated by blanks."""
        inventory = spool.read_or_empty(self._settings.devices_file, devices_pb2.Inventory)
        keys = {key_of(one) for _, one in examined}
        nodes = [
            path.path
            for known in inventory.devices
            if (known.device.vendor, known.device.card, known.device.id) in keys
            for path in known.device.paths
            if path.is_node
        ]
        addresses = [one.attributes.get("pci_address", "").replace(",", " ") for _, one in examined]
        return {
            "DEVHERD_RESOURCE_NAME": self._resource_name,
            "DEVHERD_DEVICE_IDS": " ".join(device_id for device_id, _ in examined),
            "DEVHERD_PCI_ADDRESSES": " ".join(dict.fromkeys(filter(None, addresses))),
            "DEVHERD_NODES": " ".join(dict.fromkeys(nodes)),
        }


def _is_suspect(device: spool_pb2.Device, suspects: Collection[DeviceKey]) -> bool:
    return bool(device.reasons or device.warnings) or key_of(device) in suspects


def _named(command: Sequence[str]) -> str:
    return plain(shlex.join(command), LONGEST_DETAIL)


def _held(device_id: str, _word: str, path: str, process: Opened) -> str:
    pod = f" of pod {process.place.pod_uid}" if process.place.pod_uid else ""
    return f"device {device_id!r} is in use: process {process.pid} ({process.command}){pod} has {path} open"
