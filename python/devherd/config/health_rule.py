"""`health.rules` of the configuration file: what a finding does to which devices."""

from typing import Literal

from pydantic import model_validator

from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import Patterns, Period


class HealthRule(Section):
    """What a finding means for the devices that it matches; the first rule that fits a finding decides."""

    match: Match = Match()
    source: Patterns = []
    """Globs; a rule without any is about every source. The same for reason and value."""
    reason: Patterns = []
    value: Patterns = []
    """What was read: the code of an Xid."""
    action: Literal["unhealthy", "warn", "ignore"] | None = None
    """None = as the source has it. The same for after and hold."""
    after: Period | None = None
    """How long it must stand before it counts."""
    hold: Period | None = None
    """How long after it was seen last it is held at least."""

    @model_validator(mode="after")
    def _does_something(self) -> "HealthRule":
        if self.action is None and self.after is None and self.hold is None:
            raise ValueError("a rule needs `action`, `after` or `hold`: without them it changes nothing")
        return self
