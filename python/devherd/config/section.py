"""What every section of the configuration file has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are errors; what was read never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
