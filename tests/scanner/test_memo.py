from hypothesis import given
from hypothesis import strategies as st

from devherd.scanner.pipeline import Memo


@given(st.lists(st.integers(0, 2)))
def test_a_value_is_made_once_for_each_change_of_its_key(versions):
    memo = Memo[int]()
    made: list[int] = []

    def make(version):
        made.append(version)
        return version

    for version in versions:
        assert memo.of(version, lambda version=version: make(version)) == version
    assert made == [version for place, version in enumerate(versions) if place == 0 or versions[place - 1] != version]


def test_a_value_that_is_none_is_not_made_again():
    memo = Memo[None]()
    times: list[None] = []
    for _ in range(2):
        memo.of(1, lambda: times.append(None))
    assert len(times) == 1
