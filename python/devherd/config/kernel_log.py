"""The section `health.kernel_log` of the configuration file."""

from typing import Annotated

from pydantic import model_validator

from devherd._native import check_kernel_log_rules
from devherd.config.form import Form
from devherd.config.meant import meant
from devherd.config.problem import WrongValueError, echo
from devherd.config.section import Section
from devherd.config.values import spelt
from devherd.config.vendor_options import Enabled
from devherd.health.kernel_log_rules import shipped

_Name = Annotated[
    str,
    spelt(
        "(?=.{1,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "a name of at most 63 lower-case letters, digits and single `-`",
        "write it like `nvme-lost`",
    ),
    Form("name"),
]


class KernelLogRule(Section):
    """A rule of your own for the kernel log: a record that it matches raises `kernel-log`."""

    name: _Name
    """What the rule is called, unlike any other."""
    contains: Annotated[str, spelt(".{4,}", "at least 4 characters long", "give more of the text of the record")]
    """What a text must contain before the pattern is tried."""
    pattern: str
    """A regular expression with the group `bdf`, or `uuid`, where the driver's record does not name the device."""

    @model_validator(mode="after")
    def _compiles(self) -> "KernelLogRule":
        try:
            check_kernel_log_rules([(self.name, self.contains, self.pattern)])
        except ValueError as error:
            why = str(error).rpartition("its pattern: ")[2]
            raise WrongValueError(
                f"{echo(self.pattern)} is not a pattern: {why}", "give a regular expression", at=("pattern",)
            ) from None
        return self


class KernelLogOptions(Section):
    """Whether the kernel log is read, and what is looked for beside the rules that are always in force."""

    enabled: Enabled = "auto"
    """Whether it is read. `auto`: where it may be; where it may not, that is a note of `devherd status`, and a problem
    only where there are rules of your own. `true`: it is a problem.
    """
    optional: list[str] = []
    """Names of shipped rules that are off unless they are named here; docs/health.md lists them."""
    rules: list[KernelLogRule] = []
    """Rules of your own."""

    @model_validator(mode="after")
    def _names(self) -> "KernelLogOptions":
        optional = sorted(rule.name for rule in shipped() if rule.optional)
        for place, name in enumerate(self.optional):
            if name not in optional:
                raise WrongValueError(
                    f"{echo(name)} is not a rule that can be switched on", meant(name, optional), at=("optional", place)
                )
        taken = {rule.name for rule in shipped()}
        for place, rule in enumerate(self.rules):
            if rule.name in taken:
                raise WrongValueError(
                    f"another rule is called {echo(rule.name)}", "rename it", at=("rules", place, "name")
                )
            taken.add(rule.name)
        return self
