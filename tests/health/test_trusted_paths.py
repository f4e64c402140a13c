"""Whether only the administrator could have put there what is at a path."""

import pytest

from devherd.sources.request import distrusted


@pytest.fixture
def place(tmp_path):
    """A directory of ours, whatever /tmp allows: it is sticky."""
    file = tmp_path / "own/check"
    file.parent.mkdir(mode=0o755)
    file.touch(0o644)
    return file


def test_a_file_of_ours_in_directories_of_ours_is_trusted(place):
    """Also by a link, and by a way with dots."""
    link = place.parent / "link"
    link.symlink_to("../own/./check")

    assert [distrusted(one) for one in (place, link, place.parent / "../own/check")] == [None] * 3


def test_a_link_on_the_way_to_a_link_counts_with_its_directory(tmp_path, place):
    """Whoever may write in the directory in the middle may lead the last link elsewhere."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "middle").symlink_to(place)
    first = tmp_path / "first"
    first.symlink_to(shared / "middle")
    assert distrusted(first) is None

    shared.chmod(0o777)

    assert distrusted(first) == f"everybody may write {shared}; take that right away with `chmod o-w`"


def test_links_that_lead_in_a_circle_and_what_is_not_there_are_errors(tmp_path):
    """The caller says that it cannot be read."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")

    for name in ("one", "absent", "absent/file"):
        with pytest.raises(OSError, match=r"levels of symbolic links|No such file"):
            distrusted(tmp_path / name)
