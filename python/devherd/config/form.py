"""How a value of the configuration file is written, for whoever describes the file: an annotation of its type."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """What a value is called: `duration`."""

    name: str
