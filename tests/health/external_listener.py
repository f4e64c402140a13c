"""Process `source:external-<name>`, and the program or file that it listens to."""

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

from devherd import spool
from devherd.proto import health_pb2

PROCESS = Path(__file__).with_name("listener_process.py")
PERIODIC = {"interval": 0.2, "timeout": 5.0}
QUICK = {"round": 0.1}


class Listener:
    """The process, and the program or file that it listens to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "check.jsonl"
        self.log = directory / "log"
        self._process: subprocess.Popen | None = None

    def program(self, body: str, mode: int = 0o755) -> Path:
        """A shell script; DIR is the directory of the test."""
        path = self.directory / "check"
        path.write_text(f"#!/bin/sh\nDIR={self.directory}\n{textwrap.dedent(body)}\n")
        path.chmod(mode)
        return path

    def order(self, **parts) -> None:
        defaults = {
            "command": [],
            "file": "",
            "interval": None,
            "timeout": 5.0,
            "max_age": 60.0,
            "on_silence": "keep",
            "boot_id": "boot-1",
        }
        requests = self.directory / "run/requests"
        requests.mkdir(parents=True, exist_ok=True)
        (self.directory / "run/findings").mkdir(exist_ok=True)
        spool.update(requests / "external-check.json", json.dumps(defaults | parts).encode())

    def start(self, log_format: str = "text", waits: Mapping[str, float] = QUICK) -> None:
        arguments = [self.directory / "run", "external-check", log_format, json.dumps(waits)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, PROCESS, *arguments], stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, *, log_format: str = "text", waits: Mapping[str, float] = QUICK, **parts) -> None:
        """Order it, and start the process; `waits`: those of devherd/waits.py that are not as usual."""
        self.order(**parts)
        self.start(log_format, waits)

    def said(self) -> health_pb2.Findings:
        path = spool.path_of(self.directory / "run/findings", "external-check")
        return spool.read_or_empty(path, health_pb2.Findings)

    def until(self, condition) -> health_pb2.Findings:
        deadline = time.monotonic() + 20
        while not condition(self.said()):
            assert time.monotonic() < deadline, f"{self.said()}\n{self.log.read_text()}"
            time.sleep(0.01)
        return self.said()

    def until_it_says(self, *details: str) -> health_pb2.Findings:
        wanted = sorted(details)
        return self.until(lambda said: not said.failed and sorted(one.detail for one in said.findings) == wanted)

    def end(self) -> int | None:
        if self._process is None:
            return None
        self._process.terminate()
        return self._process.wait(20)


def is_running(pid_file: Path) -> bool:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False


def gone(pid_file: Path) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid_file):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(pid: int) -> list[str]:
    """The children of a process, zombies too."""
    fields = [
        (place.parent.name, place.read_text().rpartition(")")[2].split()) for place in Path("/proc").glob("[0-9]*/stat")
    ]
    return [child for child, (_state, parent, *_) in fields if int(parent) == pid]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
