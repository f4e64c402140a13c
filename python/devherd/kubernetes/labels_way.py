"""What the ways in which labels reach the node have in common."""

from collections.abc import Mapping
from typing import Protocol


class CannotLabelError(Exception):
    """Labels cannot be written or removed: what they are written to, and why, with the cure."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place
        self.why = why


class LabelsWay(Protocol):
    """One way. Both methods may be repeated, and change nothing where nothing is to be changed."""

    def write(self, labels: Mapping[str, str]) -> str:
        """Have the node labelled so, and no more with what this way has written before.

        Answers what could not be done of it, and why; empty when all is done. Raises CannotLabelError and ApiError.
        """

    def remove(self) -> None:
        """Take back all that this way has written. Raises CannotLabelError and ApiError."""
