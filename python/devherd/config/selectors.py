"""Selectors of the configuration file: which devices a rule means."""

from pydantic import BaseModel, ConfigDict, Field

from devherd.config.values import Patterns


class Selector(BaseModel):
    """Facts that a device must have: `vendor`, `id`, `resource_name` or any attribute, each a glob, or a list of globs
    one of which must match. Letter case counts.
    """  # noqa: D205 - what users read

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, Patterns] = Field(init=False)

    def patterns(self) -> dict[str, list[str]]:
        """Fact name to globs, one of which must match; vendors may be spelt as in this file or as in the output."""
        facts = self.__pydantic_extra__ or {}
        spelt = {"vendor": [vendor.replace("-", "_") for vendor in facts["vendor"]]} if "vendor" in facts else {}
        return facts | spelt


class Match(Selector):
    """Facts that a device must have: `vendor`, `id`, `resource_name` or any attribute, each a glob, or a list of globs
    one of which must match. Letter case counts.
    """  # noqa: D205 - what users read

    exclude: list[Selector] = []
    """Devices that are left out all the same."""
