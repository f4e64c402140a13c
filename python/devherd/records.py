"""Values with named fields, frozen by default: what `@dataclass(frozen=True)` makes, for classes that a start imports.

dataclasses writes and compiles methods for each class at each import, half a millisecond of CPU time each: with these
classes 22 ms, an eighth of a start. Here all classes have the same methods. Type checkers know them by PEP 681.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self, dataclass_transform

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class _Made:
    """A field's default that is made for each value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, factory: Callable[[], Any]) -> Any:
    """The default of a field whose values can be changed: `factory` makes one for each record."""
    return _Made(factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """The base of such a class. Its fields are the annotated names, those of its bases first.

    class Point(Record):  # or (Record, kw_only=True), (Record, frozen=False)
        x: int
        y: int = 0
    """

    _fields: Mapping[str, Any] = _NOTHING
    """The default of each field, `...` for none."""
    _positional: tuple[str, ...] = ()

    def __init_subclass__(cls, *, kw_only: bool = False, frozen: bool = True) -> None:
        own = {name: vars(cls).get(name, ...) for name in cls.__annotations__}
        cls._fields = {**cls._fields, **own}
        cls._positional = cls._positional if kw_only else (*cls._positional, *own)
        if not frozen:
            cls.__setattr__ = object.__setattr__  # type: ignore[method-assign, assignment]
            cls.__delattr__ = object.__delattr__  # type: ignore[method-assign]
            cls.__hash__ = None  # type: ignore[assignment]

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        given = dict(zip(self._positional, values, strict=False)) | named
        if len(given) != len(values) + len(named) or not given.keys() <= self._fields.keys():
            raise TypeError(f"{kind.__name__} has the fields {', '.join(self._fields)}: not {values} and {named}")
        for name, default in self._fields.items():
            if name not in given:
                if default is ...:
                    raise TypeError(f"{kind.__name__} needs {name}")
                given[name] = default.make() if isinstance(default, _Made) else default
        vars(self).update(given)

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"cannot assign to {name}: a {type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete {name}: a {type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        if len(vars(self)) == len(vars(other)) == len(self._fields):
            return vars(self) == vars(other)
        return values_of(self) == values_of(other)  # without what cached properties have left there

    def __hash__(self) -> int:
        return hash(tuple(values_of(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in values_of(self).items())})"

    def but(self, **changes: Any) -> Self:
        """The same record with other values of some fields.

        `dataclasses.replace` refuses a record, which type checkers do not see: they take it for a dataclass.
        """
        return type(self)(**values_of(self) | changes)


def fields_of(kind: type[Record]) -> tuple[str, ...]:
    """The names of its fields."""
    return tuple(kind._fields)


def values_of(record: Record) -> dict[str, Any]:
    """The values of its fields, by name."""
    return {name: vars(record)[name] for name in fields_of(type(record))}


def as_plain(value: Any) -> Any:
    """A value with dictionaries and lists in place of records and tuples, as JSON has them."""
    if isinstance(value, Record):
        return {name: as_plain(each) for name, each in values_of(value).items()}
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    return [as_plain(each) for each in value] if isinstance(value, list | tuple) else value
