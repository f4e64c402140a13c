"""Records are what dataclasses are."""

import dataclasses
import pickle
from dataclasses import dataclass
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.records import Record, as_plain, field, fields_of, values_of


class Base(Record):
    x: int
    y: str = "y"


class Point(Base):
    z: tuple[int, ...] = ()
    some: list[int] = field(factory=lambda: [1])

    @property
    def both(self):
        """What a method sees."""
        return f"{self.x}{self.y}"


class Named(Record, kw_only=True):
    x: int


@dataclass(frozen=True)
class DataBase:
    x: int
    y: str = "y"


@dataclass(frozen=True)
class DataPoint(DataBase):
    z: tuple[int, ...] = ()
    some: list[int] = dataclasses.field(default_factory=lambda: [1])


VALUES = st.integers(0, 2)
ARGUMENTS = st.tuples(st.lists(VALUES, max_size=5), st.dictionaries(st.sampled_from([*"xyzw", "some"]), VALUES))


def made(kind, arguments):
    """The values by name of an instance; None for arguments that the class refuses."""
    try:
        one = kind(*arguments[0], **arguments[1])
    except TypeError:
        return None
    return {name: getattr(one, name) for name in ("x", "y", "z", "some")}


@given(ARGUMENTS)
def test_a_record_takes_and_refuses_what_a_dataclass_does(arguments):
    assert made(Point, arguments) == made(DataPoint, arguments)


@given(ARGUMENTS, ARGUMENTS)
def test_records_are_equal_where_dataclasses_are(one, other):
    if made(Point, one) is None or made(Point, other) is None:
        return
    of_records, of_data = ([kind(*each[0], **each[1]) for each in (one, other)] for kind in (Point, DataPoint))
    assert (of_records[0] == of_records[1]) == (of_data[0] == of_data[1])
    assert repr(of_records[0]) == repr(of_data[0]).replace("DataPoint", "Point")
    assert (
        values_of(of_records[0]) == as_plain(of_records[0]) | {"z": of_records[0].z} == dataclasses.asdict(of_data[0])
    )
    assert pickle.loads(pickle.dumps(of_records[0])) == of_records[0]
    assert values_of(of_records[0].but(x=7)) == dataclasses.asdict(dataclasses.replace(of_data[0], x=7))


def test_a_record_is_frozen_and_can_be_a_key():
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x"), lambda: setattr(point, "new", 2)):
        with pytest.raises(AttributeError, match="a Point is frozen"):
            change()
    with pytest.raises(TypeError, match="should be called on dataclass instances"):
        dataclasses.replace(point, x=2)
    assert (point.x, point.both, Point(1).some is Point(1).some) == (1, "1y", False)
    assert {Base(1): "one"}[Base(1, "y")] == "one"
    assert (Base(1) == Point(1), Base(1) == 1, fields_of(Point)) == (False, False, ("x", "y", "z", "some"))


def test_a_record_that_wants_names_takes_no_others():
    assert Named(x=1).x == 1
    with pytest.raises(TypeError, match=r"Named has the fields x: not \(1,\)"):
        Named(1)
    with pytest.raises(TypeError, match="Named needs x"):
        Named()


def test_a_record_that_is_not_frozen_can_be_changed_and_is_no_key():
    class Count(Record, frozen=False):
        number: int = 0

    count = Count()
    count.number += 1
    assert (count, count == Count(), fields_of(Count)) == (Count(1), False, ("number",))
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)


def test_a_record_is_what_it_was_whoever_has_asked_for_a_cached_property():
    class Name(Record):
        text: str

        @cached_property
        def length(self):
            return len(self.text)

    asked = Name("a")
    assert asked.length == 1
    assert asked == Name("a") == asked
    assert asked != Name("b")
    assert (hash(asked), repr(asked), as_plain(asked)) == (hash(Name("a")), repr(Name("a")), {"text": "a"})
    assert asked.but(text="bc").length == 2
