"""Descriptors by which KFD tells of one GPU each: ioctl AMDKFD_IOC_SMI_EVENTS of /dev/kfd (linux/kfd_ioctl.h).

/dev/kfd stays open beside them: whoever has it open has a context in KFD, and while anybody has one the kernel refuses
to partition a GPU anew (`kgd2kfd_check_and_lock_kfd`), which would free what the descriptors refer to. On a simulated
node a socket stands for them, which is told the GPU's id first.
"""

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from devherd.health.sources.amd_kfd.events import MASK

_IOC_SMI_EVENTS = 0xC0084B1F  # _IOWR('K', 0x1f, struct kfd_ioctl_smi_events_args)
_ARGUMENTS = struct.Struct("=II")  # gpuid, anon_fd
_LONGEST = 4096
_MOST_LISTENERS = 64


@dataclass(slots=True)
class Listeners:
    """Open descriptors: what is readable has something to say."""

    by_gpu: Mapping[int, int] = field(default_factory=dict)
    """Descriptor by KFD's id of the GPU."""
    device: int | None = None
    """/dev/kfd, open."""
    simulated: socket.socket | None = None

    def descriptors(self) -> list[int]:
        """For `select`."""
        return [self.simulated.fileno()] if self.simulated else [*self.by_gpu.values()]

    def hear(self) -> Iterator[tuple[int, bytes]]:
        """What waits: the GPU's id and the text."""
        if self.simulated is not None:
            with suppress(BlockingIOError):
                while True:
                    gpu, _, text = self.simulated.recv(_LONGEST).partition(b" ")
                    yield int(gpu), text
        for gpu_id, descriptor in self.by_gpu.items():
            with suppress(BlockingIOError):  # KFD says EAGAIN where there is nothing
                yield gpu_id, os.read(descriptor, _LONGEST)

    def close(self) -> None:
        """Hear no more."""
        for descriptor in self.by_gpu.values():
            os.close(descriptor)
        self.by_gpu = {}
        if self.device is not None:
            os.close(self.device)
            self.device = None
        if self.simulated is not None:
            self.simulated.close()
            self.simulated = None


def opened(device: Path, gpus: Iterable[int]) -> Listeners:
    """Listeners to these GPUs, but for those that refuse.

    Raises OSError where the device cannot be opened, or all refuse.
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


def simulated(root: Path) -> Listeners:
    """A listener on the simulated node below `root` (devherd_sim/node/listeners.py).

    Raises OSError as the device would.
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
