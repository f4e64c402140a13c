"""Section `health.external`: programs and files of the operator's that say how devices are."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from devherd.config.form import Form
from devherd.config.problem import Location, WrongValueError, duration, echo
from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import Duration, HostPath, Switch, spelt

SHORTEST_INTERVAL_SECONDS = 10.0
_SILENCE_SECONDS = 90.0
_SILENT_INTERVALS = 3


def _absolute_program(command: list[str]) -> list[str]:
    if not Path(command[0]).is_absolute():
        raise WrongValueError(
            f"{echo(command[0])} is not an absolute path, and no program is searched for",
            "give the path of the program",
            at=(0,),
        )
    return command


def _names_devices(match: Match) -> Match:
    if not match.patterns():
        raise WrongValueError("it names no device", "give a fact like `{vendor: nvidia}`, or `{id: '*'}`")
    return match


_Name = Annotated[
    str,
    spelt(
        "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
        "a name of 1 to 40 lower-case letters, digits and `-`",
        "write it like `disk-check`",
    ),
    Form("name"),
]


class External(Section):
    """A program or a file of yours that says how devices are. A program with `interval` is run each time, one without
    goes on running and prints lines.
    """  # noqa: D205 - what users read

    name: _Name
    """It is the source `external-<name>`."""
    match: Annotated[Match, AfterValidator(_names_devices)]
    """The devices of which it may speak; what it says of no device in particular is said of all of them."""
    optional: Switch = False
    """Whether there need be no such device on a node; without it, that is a warning there."""
    command: Annotated[list[str], Field(min_length=1), AfterValidator(_absolute_program)] | None = None
    """The program with its arguments."""
    file: HostPath | None = None
    """The file, in place of a program."""
    interval: Annotated[Duration, Field(ge=SHORTEST_INTERVAL_SECONDS)] | None = None
    """Time between two runs of the program; without a value it goes on running."""
    timeout: Duration = 10.0
    """How long a run may take."""
    max_age: Duration | None = None
    """After how much silence it counts as silent; without a value after three intervals, or 90 s without one."""
    on_silence: Literal["keep", "drop"] = "keep"
    """Whether the last word of a silent one stays."""

    @model_validator(mode="after")
    def _one_way(self) -> "External":
        if self.command is not None and self.file is not None:
            raise WrongValueError("it has both `command` and `file`", "remove one of them", at=("file",))
        if self.command is None and self.file is None:
            raise WrongValueError("it has neither `command` nor `file`", "add one of them")
        if self.interval is not None and self.command is None:
            raise WrongValueError("`interval` is for `command`: a file is read when it changes", "remove it", _INTERVAL)
        if self.interval is not None and self.timeout >= self.interval:
            raise WrongValueError(
                f"`{duration(self.timeout)}` is not shorter than `interval`, `{duration(self.interval)}`",
                "give a shorter `timeout`",
                at=("timeout",),
            )
        return self

    @property
    def silence_seconds(self) -> float:
        """What `max_age` comes to."""
        return self.max_age or (self.interval * _SILENT_INTERVALS if self.interval else _SILENCE_SECONDS)


_INTERVAL: Location = ("interval",)
