"""Sections about devices in use: what must hold before a container with one starts, and the ledger of holders."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from devherd.config.errors import WrongValueError
from devherd.config.types import Command, Duration, PatternsOrAny, Section, Switch
from devherd.process import LONGEST_PRE_START_SECONDS

Refusal = Literal["refuse", "wait"]


class PreStart(Section):
    """Conditions for each start of a container with such a device; without any, nothing is checked. A refused start
    fails, and the kubelet retries with increasing delay.
    """  # noqa: D205 - what users read

    occupied: Refusal | None = None
    """While a process that is not in `ledger.ignore` has the device open: `refuse` the start, or `wait` for up to 25 s,
    less the `timeout` of `program`. Not for shared devices. In a pod it needs the component `ledger`.
    """
    unhealthy: Refusal | None = None
    """`refuse` the start or `wait` while the device is Unhealthy, such as an FPGA that is being programmed."""
    program: Command | None = None
    """A program with its arguments, such as a reset or a test of the device. An exit status other than 0 refuses the
    start, with its output as the reason. docs/health-programs.md describes how it runs.
    """
    when: Literal["always", "suspect"] = "always"
    """Whether the program runs each time, or only for a device that has had a finding since it last ended with 0."""
    timeout: Annotated[Duration, Field(le=LONGEST_PRE_START_SECONDS)] = 10.0
    """Time limit of the program, at most 25 s."""
    derived = ("is_on",)

    @model_validator(mode="after")
    def _has_a_program(self) -> "PreStart":
        defaults = type(self).model_fields
        given = next((key for key in ("when", "timeout") if getattr(self, key) != defaults[key].default), None)
        if given and self.program is None:
            raise WrongValueError(
                f"`{given}` is about `program`, and there is none", "add `program`, or remove it", at=(given,)
            )
        return self

    @property
    def is_on(self) -> bool:
        """Whether the kubelet is to ask before a start."""
        return bool(self.occupied or self.unhealthy or self.program)


class Ledger(Section):
    """Compares the devices that the kubelet has given to pods with those that processes have open."""

    enabled: Switch = False
    """Whether it is kept. In a pod it needs the component `ledger`, which shows devherd the processes of the host."""
    ignore: PatternsOrAny = [
        "nvidia-persiste*",
        "nv-hostengine",
        "dcgm*",
        "nv-fabricmanage*",
        "nvidia-smi",
        "nvidia-cuda-mps*",
        "amd-smi",
        "rocm-smi",
        "gpuagent",
        "xpumd",
        "xpu-smi",
        "opensm",
        "ibacm",
    ]
    """Processes that may have any device open, by their names in /proc/PID/comm, which the kernel cuts to 15
    characters. devherd's own never count.
    """
