"""What may take long is begun first, and by as many workers as can."""

from types import SimpleNamespace

from dealing import dealt, shares
from hypothesis import given
from hypothesis import strategies as st


class Item(SimpleNamespace):
    """A test of a file, with a mark of its own where it may take longer than others."""

    def iter_markers(self, name):
        assert name == "timeout"
        return [SimpleNamespace(args=(self.seconds,))] if self.seconds else []


ITEMS = st.lists(st.builds(Item, path=st.sampled_from("abcdef"), seconds=st.sampled_from([0, 0, 0, 180, 600])))


def hands(items, workers):
    """What each worker has at the beginning, as xdist deals it."""
    order = iter(dealt(items, workers))
    return [[next(order) for _ in range(size)] for size in shares(len(items), workers)]


def test_each_file_of_long_tests_is_at_the_beginning_of_a_workers_share():
    """The longest on the first; its tests one after the other."""
    items = [Item(path=path, seconds=seconds) for path in "abc" for seconds in (0, 0, ord(path), ord(path), 0)]
    found = [[item.path for item in hand if item.seconds] for hand in hands(items, 3)]
    assert found == [["c", "c"], ["b", "b"], ["a", "a"]]
    assert all(item.seconds for hand in hands(items, 3) for item in hand[:2])


@given(ITEMS, st.integers(1, 8))
def test_every_test_is_there_once(items, workers):
    """Also where there are fewer tests than workers, or more long ones than a share has room for."""
    assert sorted(map(id, dealt(items, workers))) == sorted(map(id, items))


@given(ITEMS)
def test_tests_that_take_no_longer_than_others_keep_their_order(items):
    """A file's fixtures are made once, and a worker has neighbours."""
    short = [item for item in items if not item.seconds]
    assert [id(item) for item in dealt(items, 3) if not item.seconds] == list(map(id, short))


@given(ITEMS)
def test_a_single_worker_begins_with_the_longest(items):
    """By files, where each has one kind of tests."""
    order = [item.seconds for item in dealt(items, 1)]
    long = [seconds for seconds in order if seconds]
    assert order[: len(long)] == long
    assert not long or long[0] == max(long)
