"""What every section of the configuration file has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """Unknown keys are errors; what was read never changes. A key without a value has its default.

    The docstrings of sections and of their fields are what users read: in the schema, in `devherd config sample`, in
    docs/configuration.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, content: Any) -> Any:
        """All below `vendors:` may be commented out."""
        if not isinstance(content, dict):
            return content
        optional = {
            name for key, field in cls.model_fields.items() if not field.is_required() for name in (key, field.alias)
        }
        return {key: value for key, value in content.items() if value is not None or key not in optional}
