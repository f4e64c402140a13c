"""A value that costs to make: it is made again only when what it is made from has changed."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class MadeAgain(Generic[Value]):
    """Keeps the last value, and what it was made from."""

    def __init__(self) -> None:
        self._kept: tuple[Hashable, Value] | None = None

    def of(self, made_from: Hashable, make: Callable[[], Value]) -> Value:
        """The kept value if it was made from an equal `made_from`, otherwise a new one."""
        if self._kept is None or self._kept[0] != made_from:
            self._kept = made_from, make()
        return self._kept[1]
