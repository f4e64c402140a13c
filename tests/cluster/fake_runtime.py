"""The container runtime that only writes down: what it was asked for, and letting a container end."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from private_machine import Inside, PrivateMachine

SOCKET = "/run/fake-runtime.sock"

# What a kubelet gives every container, whatever device plugins say.
_KUBELETS_MOUNTS = ("/etc/hosts", "/dev/termination-log")
_KUBELETS_ANNOTATIONS = "io.kubernetes."
_KUBELETS_ENVS = "KUBERNETES_"  # where the services are

_PATHS = ("host_path", "container_path")


class Container:
    """A container that was made, in CRI's words."""

    def __init__(self, shown: dict[str, Any]) -> None:
        self.id: str = shown["id"]
        self.state: str = shown["state"].removeprefix("CONTAINER_")
        config = shown["request"]["config"]
        self.name: str = config["metadata"]["name"]
        self.attempt: int = config["metadata"].get("attempt", 0)
        self.pod: str = config["labels"]["io.kubernetes.pod.name"]
        self._config = config

    @property
    def given(self) -> dict[str, Any]:
        """All that it has of device plugins, in the words of `devherd scan --output json`; lists are sorted."""
        mounts = [
            {**{each: mount[each] for each in _PATHS}, "read_only": mount.get("readonly", False)}
            for mount in self._config.get("mounts", [])
            if mount["container_path"] not in _KUBELETS_MOUNTS
        ]
        envs = {each["key"]: base64.b64decode(each.get("value", "")).decode() for each in self._config.get("envs", [])}
        annotations = self._config.get("annotations", {})
        return {
            "nodes": sorted(self._config.get("devices", []), key=_text),
            "mounts": sorted(mounts, key=_text),
            "envs": {key: value for key, value in envs.items() if not key.startswith(_KUBELETS_ENVS)},
            "annotations": {k: v for k, v in annotations.items() if not k.startswith(_KUBELETS_ANNOTATIONS)},
            "cdi_devices": sorted(each["name"] for each in self._config.get("CDI_devices", [])),
        }


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


class FakeRuntime:
    """It lives in a private machine; its containers end with it."""

    def __init__(self, machine: PrivateMachine, program: Path) -> None:
        with (machine.directory / "fake-runtime.log").open("ab") as log:
            self._inside: Inside = machine.start(
                program, "fake-runtime", SOCKET, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.containers()  # answers when it serves

    def containers(self, pod: str = "", *states: str) -> list[Container]:
        """All that there ever were, in order: those of a pod, those in these states."""
        made = (Container(shown) for shown in self._ask(op="containers"))
        return [each for each in made if pod in ("", each.pod) and (not states or each.state in states)]

    def exit(self, container: Container, code: int = 1) -> None:
        """Let a container end as if its process had."""
        self._ask(op="exit", id=container.id, code=code)

    def linger(self, container: Container, seconds: int) -> None:
        """Let a container take so long to end when it is told to."""
        self._ask(op="linger", id=container.id, seconds=seconds)

    def stop(self) -> None:
        """It forgets everything, as a runtime does on a node that reboots."""
        popen = self._inside.popen
        popen.stdin.close()
        popen.wait()
        popen.stdout.close()

    def _ask(self, **question: Any) -> Any:
        popen = self._inside.popen
        popen.stdin.write(json.dumps(question) + "\n")
        popen.stdin.flush()
        line = popen.stdout.readline()
        if not line:
            raise RuntimeError(f"the fake runtime has ended with {popen.wait()}")
        answer = json.loads(line)
        if answer["error"]:
            raise RuntimeError(answer["error"])
        return answer["result"]
