"""Asks about single GPUs, each in its own short process: no GPU stays open, and a hanging one blocks no other.

A thread with a deadline would not suffice: a GPU that the library has opened stays open for the whole process until
`nvmlShutdown`, which may hang. A process that has loaded NVML must not be forked for this, and the sandbox forbids
starting programs: so the parent of the short processes is forked before NVML is loaded.
"""

import contextlib
import errno
import faulthandler
import json
import os
import selectors
import signal
import time
from collections.abc import Collection, Mapping
from typing import Any

from devherd import fork
from devherd._native import NvmlWatch, set_process_name
from devherd.sources.nvml.counts import Reading

_DIE_SECONDS = 1.0
"""Time for a killed process to end; one that needs longer is in uninterruptible sleep."""
_NAME = "nvml apart"


class Apart:
    """The process whose children ask NVML. Create it in a process with one thread."""

    def __init__(self) -> None:
        question, self._questions = os.pipe()
        self._answers, answer = os.pipe()

        def serve() -> int:
            os.close(self._questions)
            os.close(self._answers)
            faulthandler.disable()  # how one has ended is told by the other
            set_process_name(_NAME)
            _Server(answer).serve(question)
            return 0

        self._process = fork.forked(_NAME, serve)
        os.close(question)
        os.close(answer)

    def look(
        self, request: dict[str, Any], gpus: Collection[str], seconds: float
    ) -> tuple[list[Reading], dict[str, str]]:
        """The readings of these GPUs, each with a handle of its own, and why the others did not answer, by GPU."""
        if not gpus:
            return [], {}
        asked = {name: request.get(name) for name in ("driver_root", "library")}
        return self._ask({**asked, "gpus": sorted(gpus), "seconds": seconds})

    def open_nodes(self, nodes: Mapping[str, str], seconds: float) -> dict[str, int]:
        """The error of opening each GPU's node, by GPU; 0 if it opens. Those that do not come back are left out."""
        if not nodes:
            return {}
        answers, _ = self._ask({"nodes": dict(nodes), "gpus": sorted(nodes), "seconds": seconds})
        return {one["pci_address"]: one["error"] for one in answers}

    def _ask(self, question: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        try:
            os.write(self._questions, json.dumps(question).encode() + b"\n")
            answer = _line(self._answers)
        except (OSError, ValueError) as error:
            return [], dict.fromkeys(question["gpus"], f"the process that asks has ended: {error}")
        return answer["readings"], answer["troubles"]

    def close(self) -> None:
        """End the process."""
        os.close(self._questions)
        os.close(self._answers)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _line(pipe: int) -> Any:
    """The next line of a pipe, from JSON. Raises ValueError if it ends before."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(pipe, 1 << 16)
        if not part:
            raise ValueError("nothing comes from it any more")
        text += part
    return json.loads(text)


def _write(pipe: int, text: bytes) -> None:
    while text:
        text = text[os.write(pipe, text) :]


class _Server:
    """Answers one question after another."""

    def __init__(self, answer: int) -> None:
        self._answer = answer
        self._stuck: dict[str, int] = {}
        """The processes that could not be killed, by GPU."""

    def serve(self, question: int) -> None:
        """Answer until the questions end."""
        while True:
            try:
                asked = _line(question)
            except ValueError:
                return
            _write(self._answer, json.dumps(self._ask_all(asked)).encode() + b"\n")

    def _ask_all(self, question: dict[str, Any]) -> dict[str, Any]:
        readings: list[Reading] = []
        troubles: dict[str, str] = {}
        asking: dict[int, tuple[str, int]] = {}
        for gpu in question["gpus"]:
            if gpu in self._stuck and not _has_ended(self._stuck[gpu]):
                troubles[gpu] = "NVML hangs in the kernel: a process that asked it cannot be ended"
            else:
                self._stuck.pop(gpu, None)
                pipe, process = _ask(question, gpu)
                asking[pipe] = gpu, process
        texts = _read_all(asking, question["seconds"])
        for pipe, (gpu, process) in asking.items():
            os.close(pipe)
            code = self._end(gpu, process)
            try:
                answer = json.loads(texts[pipe])
                readings += answer["readings"]
                if "error" in answer:
                    troubles[gpu] = answer["error"]
            except ValueError:
                did_hang = code in {None, -signal.SIGKILL}
                how = f"did not answer within {question['seconds']:g} s" if did_hang else "crashed"
                troubles[gpu] = f"NVML {how}"
        return {"readings": readings, "troubles": troubles}

    def _end(self, gpu: str, process: int) -> int | None:
        """How a process has ended; it is killed if it has not. None if it cannot be ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + _DIE_SECONDS
        while time.monotonic() < deadline:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        self._stuck[gpu] = process
        return None


def _has_ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


def _ask(question: dict[str, Any], gpu: str) -> tuple[int, int]:
    """A process that asks about one GPU: the pipe of its answer, and its id."""
    pipe, answer = os.pipe()

    def ask() -> int:
        os.close(pipe)
        _write(answer, json.dumps(_answered(question, gpu)).encode())
        return 0

    process = fork.forked(_NAME, ask)
    os.close(answer)
    return pipe, process


def _answered(question: dict[str, Any], gpu: str) -> dict[str, Any]:
    if "nodes" in question:
        return {"readings": [{"pci_address": gpu, "error": _error_of_opening(question["nodes"][gpu])}]}
    try:
        watch = NvmlWatch(question["driver_root"], question["library"], [gpu])
    except OSError as error:
        return {"readings": [], "error": str(error)}
    return {"readings": json.loads(watch.look([gpu]))}


def _error_of_opening(node: str) -> int:
    """The kernel's error; 0 if the node opens. The driver starts the GPU for it, which may take seconds."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _read_all(asking: Collection[int], seconds: float) -> dict[int, bytes]:
    """The data from each pipe, until it ends or the time is over."""
    texts = dict.fromkeys(asking, b"")
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as waiting:
        for pipe in asking:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            left = deadline - time.monotonic()
            ready = waiting.select(left) if left > 0 else []
            if not ready:
                break
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                texts[key.fd] += part
                if not part:
                    waiting.unregister(key.fd)
    return texts
