"""What somebody who has taken over a child tries, from within.

`attack.py DIRECTORY PROGRAM[:NAME]` prints outcomes as JSON.

The child is a real one: forked, stripped and confined as the supervisor does it, then given this main function instead
of its own. An outcome is `done`, or the name of the error number.
"""

import ctypes
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from devherd import fork
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.process import Child, Heartbeats
from devherd.settings import Settings
from devherd.supervisor.process import begin
from devherd.supervisor.programs import DEVHERD
from devherd.supervisor.sandbox import Sandbox, make_directories

DIRECTORY = Path(sys.argv[1])
PROGRAM, _, NAME = sys.argv[2].partition(":")
SETTINGS = Settings(run_dir=DIRECTORY / "run", kubelet_dir=DIRECTORY / "kubelet", host_root=DIRECTORY)
CONFIG = ResolvedConfig(common=SETTINGS, cdi_dir=Path("/cdi"))
OWN, OTHER = NAME or "example.com_own", "example.com_other"
DRIVER = "gpu.example.com"
HISTORY = SETTINGS.history_directory
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, IO_URING_SETUP, X32_SOCKET = 16, 425, 0x4000_0000 + 41


def system_call(*arguments: object) -> None:
    """By its number, past Python and the C library."""
    if LIBC.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def attach(pid: int) -> None:
    if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")


def connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def reach(family: int, kind: int, address: object) -> None:
    with socket.socket(family, kind) as client:
        client.connect(address)


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
    path.unlink()


def replace(path: Path) -> None:
    beside = path.with_name(".new")
    beside.write_text("replaced")
    beside.rename(path)


def run_from_memory() -> None:
    """A program that has no path: nothing but a filter of system calls keeps it from being started."""
    descriptor = os.memfd_create("program", 0)
    os.write(descriptor, b"#!/bin/true\n")
    os.execve(descriptor, ["program"], {})


def attempts(parent: int) -> dict[str, Callable[[], object]]:
    """Everything that is tried, by what it is called in the test."""
    offers, states = SETTINGS.resources_directory, SETTINGS.state_directory
    inet, inet6, packet, netlink = socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_NETLINK
    return {
        "read its offer": (offers / OWN / "current.pb").read_bytes,
        "list the directory of its offer": lambda: list((offers / OWN).iterdir()),
        "write its offer": lambda: replace(offers / OWN / "current.pb"),
        "write its history": lambda: replace(HISTORY / f"resource:{OWN}" / "current.jsonl"),
        "write another's history": lambda: replace(HISTORY / f"resource:{OTHER}" / "current.jsonl"),
        "write its state": lambda: replace(states / OWN / "current.pb"),
        "serve in the plugin directory": lambda: listen(SETTINGS.plugin_directory / "devherd-0.sock"),
        "serve in the directory of its driver": lambda: listen(SETTINGS.plugins_directory / DRIVER / "dra-0.sock"),
        "serve in the directory of another driver": lambda: listen(SETTINGS.plugins_directory / "csi" / "0.sock"),
        "read what another driver has": (SETTINGS.plugins_directory / "csi" / "secret").read_bytes,
        "remove what another driver has": (SETTINGS.plugins_directory / "csi" / "volume").unlink,
        "write a claim": lambda: replace(SETTINGS.prepared_claims_file),
        "connect to the kubelet": lambda: connect(str(SETTINGS.kubelet_socket)),
        "read another's offer": (offers / OTHER / "current.pb").read_bytes,
        "list the offers": lambda: list(offers.iterdir()),
        "write another's offer": lambda: replace(offers / OTHER / "current.pb"),
        "read another's state": (states / OTHER / "current.pb").read_bytes,
        "write another's state": lambda: replace(states / OTHER / "current.pb"),
        "make a state": (states / "example.com_new").mkdir,
        "read the configuration": SETTINGS.resolved_config_file.read_bytes,
        "write a CDI spec": lambda: replace(CONFIG.cdi_directory / "gpu.json"),
        "write a file beside its socket": lambda: (SETTINGS.plugin_directory / "file").write_text("x"),
        "read a secret of a pod": (SETTINGS.kubelet_dir / "pods/token").read_bytes,
        "remove a file of a pod": (SETTINGS.kubelet_dir / "pods/volume").unlink,
        "read a file of the host": Path("/etc/passwd").read_bytes,
        "write a file of the host": lambda: (DIRECTORY / "dropped").write_text("x"),
        "read sysfs": lambda: list(Path("/sys/class").iterdir()),
        "read a device": lambda: Path("/dev/zero").open("rb").close(),
        "write a device": lambda: os.close(os.open("/dev/zero", os.O_WRONLY)),
        "open the device of AMD's GPUs": lambda: os.close(os.open(DIRECTORY / "dev/kfd", os.O_RDWR)),
        "make a device": lambda: os.mknod(states / OWN / "null", 0o20600, os.makedev(1, 3)),
        "read the supervisor's environment": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "trace the supervisor": lambda: attach(parent),
        "signal the supervisor": lambda: os.kill(parent, 0),
        "reach a TCP port": lambda: reach(inet, socket.SOCK_STREAM, ("127.0.0.1", int(os.environ["TCP_PORT"]))),
        "reach a UDP port": lambda: reach(inet, socket.SOCK_DGRAM, ("127.0.0.1", 53)),
        "reach IPv6": lambda: reach(inet6, socket.SOCK_STREAM, ("::1", int(os.environ["TCP_PORT"]))),
        "send raw packets": lambda: socket.socket(packet, socket.SOCK_RAW).close(),
        "talk netlink": lambda: socket.socket(netlink, socket.SOCK_RAW).close(),
        "make an x32 socket": lambda: system_call(X32_SOCKET, int(packet), 1, 0),
        "listen on a TCP port": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        "connect to an abstract socket": lambda: connect(os.environ["ABSTRACT"].replace("@", "\0")),
        "open a ring": lambda: system_call(IO_URING_SETUP, 1, ctypes.create_string_buffer(120)),
        "start a program": lambda: os.execv("/bin/true", ["true"]),
        "start a program from memory": run_from_memory,
        "change a mode": lambda: (states / OWN).chmod(0o777),
        "mount": lambda: LIBC.mount(b"none", bytes(states / OWN), b"tmpfs", 0, None) and fail(ctypes.get_errno()),
    }


def fail(number: int) -> None:
    raise OSError(number, "")


def outcome(attempt: Callable[[], object]) -> str:
    """In a process of its own, as a successful exec would end this one."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 9)  # inherited by what is started
        try:
            attempt()
            os.write(write, b"done")
        except OSError as error:
            os.write(write, errno.errorcode[error.errno].encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        return said.read() or "done"


def attack(child: Child) -> int:
    """The main function of the child."""
    parent = os.getppid()
    print(json.dumps({name: outcome(attempt) for name, attempt in attempts(parent).items()}), flush=True)
    print("waiting", flush=True)
    while True:  # until the test has looked at it from outside
        child.beat()
        time.sleep(1)


def main() -> None:
    """The part of the supervisor."""
    write_resolved(SETTINGS.resolved_config_file, CONFIG)
    program = next(program for program in DEVHERD.children if program.group == PROGRAM and program.keys(OWN))
    access = program.may(SETTINGS, OWN)
    make_directories(access)
    heartbeats = Heartbeats()
    output, sandbox = os.dup(1), Sandbox(access)
    child = Child(f"{program.group}:{OWN}", SETTINGS, heartbeats, heartbeats.claim(), sandbox)

    def run() -> int:
        begin(child, sandbox, output)
        return attack(child)

    fork.forked(child.name, run)
    os.close(1)
    os.close(output)
    os.wait()


if __name__ == "__main__":
    main()
