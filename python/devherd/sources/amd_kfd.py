"""Source `amd-kfd`: resets of AMD GPUs, read from descriptors that the driver's device /dev/kfd provides."""

import errno
import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from devherd import signals
from devherd._native import Evidence, kfd_slots
from devherd.config.resolved import is_simulated
from devherd.log import Once
from devherd.proto import health_pb2
from devherd.reasons.registry import GPU_RESET
from devherd.sources.report import Report
from devherd.sources.request import Order

log = logging.getLogger(__name__)

PRE_RESET, POST_RESET = 3, 4
"""`KFD_SMI_EVENT_GPU_PRE_RESET` and `_POST_RESET`; a line is `<event> <number of the reset> <cause>`."""
MASK = 1 << (PRE_RESET - 1) | 1 << (POST_RESET - 1)
"""`KFD_SMI_EVENT_MASK_FROM_INDEX` of both."""
_LONGEST_CAUSE = 100
_IOC_SMI_EVENTS = 0xC0084B1F  # _IOWR('K', 0x1f, struct kfd_ioctl_smi_events_args)
_ARGUMENTS = struct.Struct("=II")  # gpuid, anon_fd
_LONGEST = 4096
_MOST_LISTENERS = 64
AGAIN_SECONDS = 30.0
"""Time between two searches for GPUs, and between two attempts to open the device."""
_CURE = "a container needs the device: add the component amd of the DaemonSet; or set health.amd_kfd to false"


@dataclass(frozen=True, slots=True)
class Reset:
    """The beginning or the end of a GPU reset."""

    begins: bool
    cause: str = ""
    """The cause in the driver's words; empty before Linux 6.11."""


class AmdKfd:
    """Listens to the resets of all GPUs of the host."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.socket)
        self.spoke_at = time.monotonic()
        self._device = Path(order.socket)
        self._host_root = self._device.parents[1]
        self._slots: dict[int, str] = {}
        self._listeners = Listeners()
        self._look_at = self.spoke_at
        self._complaint = Once(log.warning)

    def listen(self, timeout: float) -> None:
        """Read events for at most `timeout` seconds."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + AGAIN_SECONDS
            self._look()
        descriptors = self._listeners.descriptors()
        if not descriptors:
            signals.rest(timeout)
            return
        if signals.ready(descriptors, timeout):
            for gpu_id, text in self._listeners.read():
                for reset in resets_in(text):
                    self._take(self._slots.get(gpu_id, ""), reset)
        self.spoke_at = time.monotonic()

    def close(self) -> None:
        """Close the descriptors."""
        self._listeners.close()

    def _look(self) -> None:
        """Open the listeners if the GPUs changed or none is open. KFD refuses this while a reset runs."""
        slots = kfd_slots(str(self._host_root))
        if slots == self._slots and self._listeners.descriptors() and self._device.exists():
            return
        self._listeners.close()
        try:
            simulated = is_simulated(self._host_root)
            self._listeners = simulated_listeners(self._host_root) if simulated else open_listeners(self._device, slots)
            self._slots = slots
            self._complaint.over()
            self._end_all()
        except OSError as error:
            why = error.strerror or str(error)
            self._complaint.complain("resets of AMD GPUs are not received: %s: %s: %s", self._device, why, _CURE)

    def _end_all(self) -> None:
        """End all known resets: their ends came before this process started, or while no listener was open."""
        over = self.report.evidence
        for at in [one.at for (device, _), one in self.report.findings.items() if device not in over]:
            self._end(at)

    def _end(self, at: health_pb2.Target) -> None:
        self.report.evidence[at.SerializeToString()] = health_pb2.Evidence(
            at=at, evidence=Evidence.SOURCE_CLEARED, reason=GPU_RESET, monotonic_seconds=time.monotonic()
        )

    def _take(self, slot: str, reset: Reset) -> None:
        if not slot:
            return
        at = health_pb2.Target(vendor="amd", pci_address=slot)
        device = at.SerializeToString()
        key = next((key for key in self.report.findings if key[0] == device), (device, ""))
        is_known = key in self.report.findings
        clock = time.monotonic()
        if reset.begins:
            finding = self.report.findings.setdefault(
                key, health_pb2.Finding(at=at, reason=GPU_RESET, file=self.report.origin)
            )
            was_over = not is_known or device in self.report.evidence
            self.report.evidence.pop(device, None)
            finding.detail = "the driver resets the GPU" + (f": {reset.cause}" if reset.cause else "")
            finding.value = reset.cause
            finding.count += was_over  # each partition of a GPU reports the same reset
            if was_over:
                finding.last_monotonic_seconds = clock
        elif is_known:
            self._end(at)


def resets_in(text: bytes) -> Iterator[Reset]:
    """The resets in whole lines, in order; other events and malformed lines are skipped."""
    for line in text.split(b"\n"):
        event, _, rest = line.decode("utf-8", "replace").partition(" ")
        number, _, cause = rest.partition(" ")
        if event in {f"{PRE_RESET:x}", f"{POST_RESET:x}"} and _is_hexadecimal(number):
            printable = "".join(letter for letter in cause if letter.isprintable())
            yield Reset(event == f"{PRE_RESET:x}", printable.strip()[:_LONGEST_CAUSE])


def _is_hexadecimal(word: str) -> bool:
    return bool(word) and all(letter in "0123456789abcdef" for letter in word)


@dataclass(slots=True)
class Listeners:
    """Open descriptors: a readable one has events."""

    by_gpu: Mapping[int, int] = field(default_factory=dict)
    """Descriptor by KFD's id of the GPU."""
    device: int | None = None
    """/dev/kfd, open."""
    simulated: socket.socket | None = None

    def descriptors(self) -> list[int]:
        """The descriptors to wait for."""
        return [self.simulated.fileno()] if self.simulated else [*self.by_gpu.values()]

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The waiting events: KFD's id of the GPU, and the text."""
        if self.simulated is not None:
            with suppress(BlockingIOError):
                while True:
                    gpu, _, text = self.simulated.recv(_LONGEST).partition(b" ")
                    yield int(gpu), text
        for gpu_id, descriptor in self.by_gpu.items():
            with suppress(BlockingIOError):  # KFD returns EAGAIN without events
                yield gpu_id, os.read(descriptor, _LONGEST)

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self.by_gpu.values():
            os.close(descriptor)
        self.by_gpu = {}
        if self.device is not None:
            os.close(self.device)
            self.device = None
        if self.simulated is not None:
            self.simulated.close()
            self.simulated = None


def open_listeners(device: Path, gpus: Iterable[int]) -> Listeners:
    """Listeners to these GPUs; a GPU whose listener cannot be opened is skipped.

    Raises OSError when the device cannot be opened, or no listener of any GPU.
    """
    kfd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    made: dict[int, int] = {}
    refusal: OSError | None = None
    for gpu in sorted(gpus):
        try:
            made[gpu] = _listener(kfd, gpu)
        except OSError as error:
            refusal = error
    if refusal and not made:
        os.close(kfd)
        raise refusal
    return Listeners(made, kfd)


def _listener(kfd: int, gpu: int) -> int:
    answer = fcntl.ioctl(kfd, _IOC_SMI_EVENTS, _ARGUMENTS.pack(gpu, 0))
    _, descriptor = _ARGUMENTS.unpack(answer)
    os.set_blocking(descriptor, False)
    os.set_inheritable(descriptor, False)
    os.write(descriptor, struct.pack("=Q", MASK))
    return int(descriptor)


def simulated_listeners(root: Path) -> Listeners:
    """A listener on the simulated node below `root` (devherd_sim/node/kernel_events.py).

    Raises OSError as opening the device does.
    """
    if not os.access(root / "dev/kfd", os.R_OK | os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    status = root.stat()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.setblocking(False)
    for number in range(_MOST_LISTENERS):
        with suppress(OSError):
            listener.bind(f"\0devherd-kfd-{status.st_dev}-{status.st_ino}-{number}")
            return Listeners(simulated=listener)
    listener.close()
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
