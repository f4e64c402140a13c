"""A machine beside the machine: mounts, network and processes of its own, so that nothing of the real one is touched.

Whatever was started in it ends with it, also when pytest is killed: its first process ends when its stdin does.
"""

import ctypes
import fcntl
import http.client
import os
import signal
import socket
import ssl
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NAME = "node-1"
ADDRESS = "10.99.0.1"  # beside 127.0.0.1; nothing outside can reach either

# The kubelet sets these and ends where it cannot; they are the whole machine's. Here it finds them set.
_KNOBS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}

# /var/lib becomes a directory of links to what is in it, beside those of kubelet and devherd, which are others here.
_FIRST_PROCESS = """
set -e
read -r pid rest </proc/self/stat
mount -t proc proc /proc
mount --rbind /var/lib "$0/lib"
mount -t tmpfs none /var/lib
ln -s "$0"/lib/* /var/lib/
rm -f /var/lib/kubelet /var/lib/devherd
mkdir /var/lib/kubelet /var/lib/devherd
mount --bind "$0/kubelet" /var/lib/kubelet
mount --bind "$0/state" /var/lib/devherd
mount --bind "$0/run" /run
mount --bind "$0/log" /var/log
mount --bind "$0/hosts" /etc/hosts
for knob in $1; do [ ! -e "/proc/sys/$knob" ] || mount --bind "$0/$knob" "/proc/sys/$knob"; done
mounts=$(cat /proc/mounts)
while read -r device place kind rest; do
    case $kind in cgroup*) mount -o remount,bind,ro "$place" ;; esac
done <<MOUNTS
$mounts
MOUNTS
hostname "$2"
echo "$pid"
cat
true
"""

_NAMESPACES = ("--mount", "--net", "--pid", "--uts")

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8916, 0x1  # linux/sockios.h, linux/if.h


class PrivateMachine:
    """In the directory: `kubelet` is its /var/lib/kubelet, `state` /var/lib/devherd, `run` /run, `log` /var/log.

    Raises OSError where namespaces are not to be had: they take root, and util-linux.
    """

    _first_process = _FIRST_PROCESS

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[Inside] = []
        for name in ("kubelet", "state", "run", "log", "lib"):
            (directory / name).mkdir()
        (directory / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n")
        for knob, value in _KNOBS.items():
            (directory / knob).parent.mkdir(parents=True, exist_ok=True)
            (directory / knob).write_text(f"{value}\n")
        self._unshare = subprocess.Popen(
            self._command(["sh", "-c", self._first_process, directory, " ".join(_KNOBS), NAME]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self._unshare.stdout.readline().strip()
        if not said:
            raise PermissionError(self._unshare.communicate()[1].strip())
        self._first = int(said)
        self._network = ThreadPoolExecutor(1, initializer=self._enter_network)
        self._network.submit(_set_up_network).result()

    def start(self, *command: object, **popen: Any) -> "Inside":
        """A program in it. `popen` is for Popen: where its output goes, its environment."""
        inside = Inside(subprocess.Popen([*self._enter(), *map(str, command)], **popen))
        self._started.append(inside)
        return inside

    def ask(self, url: str, method: str = "GET", body: str = "", **headers: str) -> tuple[int, str]:
        """HTTP or HTTPS in its network: status and content. Raises OSError when nobody answers."""
        scheme, _, rest = url.partition("://")
        server, _, path = rest.partition("/")
        host, _, port = server.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.sock = self._network.submit(socket.create_connection, (host, int(port)), 10).result()
        if scheme == "https":  # its certificate is made when it starts
            connection.sock = ssl._create_unverified_context().wrap_socket(connection.sock)
        try:
            connection.request(method, f"/{path}", body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{url}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        """End all that runs in it."""
        self._network.shutdown()
        self._unshare.stdin.close()
        for inside in self._started:
            inside.popen.wait()
        self._unshare.wait()
        self._unshare.stdout.close()
        self._unshare.stderr.close()

    def _command(self, first_process: list[object]) -> list[object]:
        return ["unshare", *_NAMESPACES, "--fork", "--kill-child", *first_process]

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._first}", *_NAMESPACES]

    def _enter_network(self) -> None:
        """The sockets of this thread, and of no other, are of the private network from now on."""
        with Path(f"/proc/{self._first}/ns/net").open() as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")


class Inside:
    """A program in a private machine. Its parent is `nsenter`, which ends as it does."""

    def __init__(self, popen: subprocess.Popen[Any]) -> None:
        self.popen = popen

    @property
    def pid(self) -> int:
        """Its process, by the number that it has outside. Raises ProcessLookupError when there is none."""
        try:
            return int(Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text().split()[0])
        except (OSError, IndexError):
            raise ProcessLookupError(self.popen.args) from None

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Send a signal and wait for the end; SIGKILL follows when there is none. Returns the exit code."""
        try:
            os.kill(self.pid, number)
            return self.popen.wait(seconds)
        except ProcessLookupError:
            return self.popen.wait()
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            return self.popen.wait()


def _set_up_network() -> None:
    """Bring the loopback device up, with a second address: one that is no loopback address, for the kubelet."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(any_socket, _SIOCSIFADDR, address)
