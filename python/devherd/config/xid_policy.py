"""`health.xid` of the configuration file: what NVIDIA's Xids do."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from devherd.config.problem import WrongValueError, echo
from devherd.config.section import Section
from devherd.health.xids import OF_PLUGIN_IGNORED

Action = Literal["unhealthy", "warn", "ignore"]


class XidPolicy(Section):
    """What NVIDIA's Xids do: a policy for all codes, and codes that do something else: `{policy: plugin, 94: ignore}`.

    An action is `unhealthy`, `warn` or `ignore`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Action] = Field(init=False)

    policy: Literal["devherd", "plugin"] = "devherd"
    """`devherd`: NVIDIA's catalogue decides; `plugin`: as in NVIDIA's plugin, all but six make a device Unhealthy."""

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, content: Any) -> Any:
        """YAML reads a code as a number."""
        return {str(key): value for key, value in content.items()} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _are_codes(self) -> "XidPolicy":
        for key in self.__pydantic_extra__ or {}:
            if not (key.isascii() and key.isdigit()):
                raise WrongValueError(
                    f"{echo(key)} is neither `policy` nor the code of an Xid", "codes are numbers like `79`", at=(key,)
                )
        return self

    def decisions(self) -> Iterator[tuple[list[str], Action]]:
        """Codes and what they do, the first that fits decides; no codes: all."""
        for code, action in (self.__pydantic_extra__ or {}).items():
            yield [str(int(code))], action
        if self.policy == "plugin":
            yield [str(code) for code in sorted(OF_PLUGIN_IGNORED)], "ignore"
            yield [], "unhealthy"
