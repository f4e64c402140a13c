"""The Python side of the harness: a real kubelet's device manager that can be asked, and killed."""

import json
import signal
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 60.0


class KubeletError(Exception):
    """The harness's answer to a request that it cannot fulfil."""


@dataclass(frozen=True)
class Container:
    """What the runtime would get for a container; `error` is why it cannot be started."""

    error: str = ""
    device_ids: dict[str, list[str]] = field(default_factory=dict)
    devices: list[dict[str, str]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    envs: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The device nodes inside the container."""
        return [device["container_path"] for device in self.devices]


@dataclass(frozen=True)
class Admission:
    """What became of a pod; reason and message are those of its status when it was rejected."""

    admitted: bool
    reason: str
    message: str
    containers: dict[str, Container]

    @property
    def main(self) -> Container:
        """The container that `pod` calls main."""
        return self.containers["main"]


def container(name: str, limits: dict[str, int], *, sidecar: bool = False) -> dict[str, Any]:
    """A container that asks for resources."""
    return {"name": name, "limits": limits, "sidecar": sidecar}


def pod(uid: str, limits: dict[str, int] | None = None, *, containers=(), init=()) -> dict[str, Any]:
    """A pod: by default with one container, `main`."""
    apps = list(containers) or [container("main", limits or {})]
    return {"uid": uid, "name": uid, "namespace": "default", "init_containers": list(init), "containers": apps}


class RealKubelet:
    """One node's kubelet. Each `start` is a new process on the same directory."""

    def __init__(self, program: Path, directory: Path, log: Path) -> None:
        self.program = program
        self.directory = directory
        self.plugins = directory / "device-plugins"
        self.checkpoint_file = self.plugins / "kubelet_internal_checkpoint"
        self.log = log
        self.events: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        """With which it was started last."""
        self._process: subprocess.Popen[str] | None = None

    def start(self, **options: Any) -> None:
        """Be a kubelet from now on; the options are startOptions of harness/kubelet.go."""
        self.options = options
        self._mutex = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, args=(self._process, self._waiting), daemon=True)
        self._reader.start()
        self.ask("start", directory=str(self.directory), **options)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it as a kubelet ends: without a word to anyone, kubelet.sock left behind."""
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(20)
        self._reader.join(20)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def restart(self, **changes: Any) -> None:
        """Kill and start, with the options of before unless changed."""
        self.kill()
        self.start(**(self.options | changes))

    def send(self, operation: str, **fields: Any) -> "Future[Any]":
        """Ask without waiting for the answer."""
        answer: Future[Any] = Future()
        with self._mutex:
            self._number += 1
            number = self._number
            self._waiting[number] = answer
        self.send_line(json.dumps({"id": number, "op": operation, **fields}))
        return answer

    def send_line(self, line: str) -> None:
        """Any text, also one that is no request."""
        with self._mutex:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def ask(self, operation: str, **fields: Any) -> Any:
        """Ask and wait. Raises KubeletError."""
        return self.send(operation, **fields).result(ANSWER_SECONDS)

    def capacity(self, resource: str) -> tuple[int, int] | None:
        """Capacity and allocatable, as the Node would show them; None for a resource that is not known."""
        node = self.ask("capacity")
        if resource not in node["capacity"]:
            return None
        return node["capacity"][resource], node["allocatable"].get(resource, 0)

    def devices(self, resource: str) -> dict[str, list[int] | None]:
        """The healthy devices with their NUMA nodes."""
        return self.ask("devices").get(resource, {})

    def registrations(self, resource: str) -> int:
        """How often Register was called since the start."""
        return int(self.ask("registrations").get(resource, 0))

    def admit(self, spec: dict[str, Any]) -> Admission:
        """Admit a pod, and start its containers if it was."""
        return admission(self.ask("admit", pod=spec))

    def _read(self, process: "subprocess.Popen[str]", waiting: dict[int, "Future[Any]"]) -> None:
        for line in process.stdout:
            message = json.loads(line)
            answer = waiting.pop(message["id"], None) if message.get("id") else None
            if answer is None:
                self.events.append(message)
            elif "error" in message:
                answer.set_exception(KubeletError(message["error"]))
            else:
                answer.set_result(message["result"])
        with self._mutex:
            left = list(waiting.values())
        for answer in left:
            answer.set_exception(KubeletError("the kubelet has ended"))


def admission(result: dict[str, Any]) -> Admission:
    """The harness's answer to `admit`."""
    containers = {name: Container(**told) for name, told in (result.pop("containers") or {}).items()}
    return Admission(containers=containers, **result)
