"""The section `health.kernel_log` of the configuration file."""

from typing import Annotated

from pydantic import StringConstraints, model_validator

from devherd._native import check_kernel_log_rules
from devherd.config.section import Section
from devherd.health.kernel_log_rules import shipped


class KernelLogRule(Section):
    """A rule of the user's own: a record that matches raises `kernel-log`, with the rule's name or what it finds."""

    name: Annotated[str, StringConstraints(pattern="^[a-z0-9]+(-[a-z0-9]+)*$", max_length=63)]
    contains: Annotated[str, StringConstraints(min_length=4)]
    """What a text must contain before the pattern is tried."""
    pattern: str
    """A regular expression with the group `bdf`, or `uuid`, where the driver's record does not name the device."""

    @model_validator(mode="after")
    def _compiles(self) -> "KernelLogRule":
        check_kernel_log_rules([(self.name, self.contains, self.pattern)])
        return self


class KernelLogOptions(Section):
    """Whether the kernel log is read, and what is looked for beside the rules that are always in force."""

    enabled: bool = True
    optional: list[str] = []
    """Shipped rules that are off unless they are named here."""
    rules: list[KernelLogRule] = []

    @model_validator(mode="after")
    def _names(self) -> "KernelLogOptions":
        optional = {rule.name for rule in shipped() if rule.optional}
        if unknown := sorted(set(self.optional) - optional):
            raise ValueError(f"optional: no rule {unknown[0]}: there are {', '.join(sorted(optional))}")
        taken = [rule.name for rule in shipped()] + [rule.name for rule in self.rules]
        if twice := next((rule.name for rule in self.rules if taken.count(rule.name) > 1), None):
            raise ValueError(f"rules: there is another rule {twice}: give it a name of its own")
        return self
