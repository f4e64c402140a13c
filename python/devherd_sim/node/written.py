"""A type annotation that validates a text in a spec by a regular expression."""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from devherd.config.errors import WrongValueError, echo


@dataclass(frozen=True, slots=True)
class Written:
    """The form of a text. `form`: the pattern in words, such as `four hexadecimal digits`."""

    pattern: str
    form: str
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook for validation."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Pydantic's hook for the JSON Schema."""
        return handler(schema) | {"pattern": self.pattern, "examples": [self.example]}

    def _checked(self, text: str) -> str:
        if not re.search(self.pattern, text):
            raise WrongValueError(f"{echo(text)} is not {self.form}", f"write it like `{self.example}`")
        return text
