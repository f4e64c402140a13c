"""`health.rules` of the configuration file: what a finding does to which devices."""

from typing import Literal

from pydantic import model_validator

from devherd.config.problem import WrongValueError
from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import PatternsOrAny, Period, Switch


class HealthRule(Section):
    """What a finding means for the devices that it matches; the first rule that fits a finding decides."""

    match: Match = Match()
    """Which devices it is about, by their facts; empty: all."""
    optional: Switch = False
    """Whether there need be no such device on a node; without it, that is a warning there."""
    source: PatternsOrAny = []
    """Which sources it is about; empty: every one."""
    reason: PatternsOrAny = []
    """Which reasons it is about; empty: every one."""
    value: PatternsOrAny = []
    """Which values read it is about, such as the code of an Xid; empty: every one."""
    action: Literal["unhealthy", "warn", "ignore"] | None = None
    """What the finding does: make the device Unhealthy, stand beside its health as a warning, or nothing; without a
    value what docs/health.md says.
    """
    after: Period | None = None
    """How long it must last before it counts; without a value as the source has it."""
    hold: Period | None = None
    """How long after it was last seen it counts at least; without a value as the source has it."""

    @model_validator(mode="after")
    def _does_something(self) -> "HealthRule":
        if self.action is None and self.after is None and self.hold is None:
            raise WrongValueError("the rule changes nothing", "add `action`, `after` or `hold`")
        return self
