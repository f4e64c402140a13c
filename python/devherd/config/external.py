"""Section `health.external`: programs and files of the operator's that say how devices are."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import Duration, HostPath

SHORTEST_INTERVAL_SECONDS = 10.0
_SILENCE_SECONDS = 90.0
_SILENT_INTERVALS = 3


def _absolute_program(command: list[str]) -> list[str]:
    if not Path(command[0]).is_absolute():
        raise ValueError(f"{command[0]!r} is not an absolute path; a program is not looked for")
    return command


def _names_devices(match: Match) -> Match:
    if not match.patterns():
        raise ValueError("it names no device; give a fact like `{vendor: nvidia}`, or `{id: '*'}`")
    return match


class External(Section):
    """One of them. A program with `interval` is run each time, one without goes on running and prints lines."""

    name: Annotated[str, StringConstraints(pattern="^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
    """It is the source `external-<name>`."""
    match: Annotated[Match, AfterValidator(_names_devices)]
    """The devices that it may speak of; what it says of no device in particular is said of all of them."""
    command: Annotated[list[str], Field(min_length=1), AfterValidator(_absolute_program)] | None = None
    file: HostPath | None = None
    interval: Annotated[Duration, Field(ge=SHORTEST_INTERVAL_SECONDS)] | None = None
    timeout: Duration = 10.0
    """How long a program with `interval` may take."""
    max_age: Duration | None = None
    """After how much silence it counts as silent; None = after three intervals, or 90 s without one."""
    on_silence: Literal["keep", "drop"] = "keep"
    """Whether a silent one's last word stays."""

    @model_validator(mode="after")
    def _one_way(self) -> "External":
        if (self.command is None) == (self.file is None):
            raise ValueError("it needs either `command` or `file`, and not both")
        if self.interval is not None and self.command is None:
            raise ValueError("`interval` is for `command`: a file is read when it changes")
        if self.interval is not None and self.timeout >= self.interval:
            raise ValueError("`timeout` must be shorter than `interval`")
        return self

    @property
    def silence_seconds(self) -> float:
        """What `max_age` comes to."""
        return self.max_age or (self.interval * _SILENT_INTERVALS if self.interval else _SILENCE_SECONDS)
