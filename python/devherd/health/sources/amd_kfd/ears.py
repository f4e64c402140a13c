"""Descriptors by which KFD tells of one GPU each: ioctl AMDKFD_IOC_SMI_EVENTS of /dev/kfd (linux/kfd_ioctl.h).

Whoever opens /dev/kfd has a context in KFD until all of its memory is gone, and while anybody has one no GPU can be
partitioned anew (`kgd2kfd_check_and_lock_kfd`). So a process that ends at once opens it, and hands the descriptors on:
they need no context. On a simulated node a socket stands for them, which is told the GPU's id first.
"""

import errno
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from devherd.health.sources.amd_kfd.events import MASK

_IOC_SMI_EVENTS = 0xC0084B1F  # _IOWR('K', 0x1f, struct kfd_ioctl_smi_events_args)
_ARGUMENTS = struct.Struct("=II")  # gpuid, anon_fd
_MOST_GPUS = 128
_DEADLINE_SECONDS = 5.0
_LONGEST = 4096
_MOST_LISTENERS = 64


@dataclass(slots=True)
class Ears:
    """Open descriptors: what is readable has something to say."""

    by_gpu: Mapping[int, int] = field(default_factory=dict)
    """Descriptor by KFD's id of the GPU."""
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
        if self.simulated is not None:
            self.simulated.close()
            self.simulated = None


def opened(device: Path, gpus: Iterable[int]) -> Ears:
    """Ears for these GPUs. Raises OSError where the device cannot be opened, or has no such events."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        helper = os.fork()
        if helper == 0:
            _hand_on(device, sorted(gpus)[:_MOST_GPUS], there)
        try:
            here.settimeout(_DEADLINE_SECONDS)
            said, descriptors, _, _ = socket.recv_fds(here, _LONGEST, _MOST_GPUS)
        except TimeoutError:
            os.kill(helper, signal.SIGKILL)
            raise TimeoutError(errno.ETIMEDOUT, "KFD does not answer") from None
        finally:
            with suppress(ChildProcessError):
                os.waitpid(helper, os.WNOHANG if _is_stuck(helper) else 0)
    number, *told = struct.unpack(f"={len(said) // 4}I", said)
    if number:
        raise OSError(number, os.strerror(number))
    for descriptor in descriptors:
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
    return Ears(dict(zip(told, descriptors, strict=True)))


def _hand_on(device: Path, gpus: list[int], there: socket.socket) -> None:
    """In the process that ends: an error's number, or 0 and the ids of the GPUs whose descriptors go along."""
    try:
        kfd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        ears = {gpu: _ear(kfd, gpu) for gpu in gpus}
        socket.send_fds(there, [struct.pack(f"={len(ears) + 1}I", 0, *ears)], [*ears.values()])
    except OSError as error:
        with suppress(OSError):
            there.send(struct.pack("=I", error.errno or errno.EIO))
    finally:
        os._exit(0)


def _ear(kfd: int, gpu: int) -> int:
    answer = fcntl.ioctl(kfd, _IOC_SMI_EVENTS, _ARGUMENTS.pack(gpu, 0))
    _, descriptor = _ARGUMENTS.unpack(answer)
    os.write(descriptor, struct.pack("=Q", MASK))
    return int(descriptor)


def _is_stuck(helper: int) -> bool:
    """Whether it sleeps in the kernel, and cannot even be killed."""
    try:
        return Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    except OSError:
        return False


def simulated(root: Path) -> Ears:
    """Ears on the simulated node below `root` (devherd_sim/node/listeners.py). Raises OSError as the device would."""
    if not os.access(root / "dev/kfd", os.R_OK | os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    status = root.stat()
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.setblocking(False)
    for number in range(_MOST_LISTENERS):
        with suppress(OSError):
            ear.bind(f"\0devherd-kfd-{status.st_dev}-{status.st_ino}-{number}")
            return Ears(simulated=ear)
    ear.close()
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
