"""Labels by a feature file, read as Node Feature Discovery's local source reads it."""

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.kubernetes import labels as labels_module
from devherd.kubernetes.labels import LIFETIME_SECONDS, CannotLabelError, FeatureFile, expiry_in, rendered

NAMES = st.from_regex(r"[a-z]{1,5}\.io/[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"([A-Za-z0-9][A-Za-z0-9._-]{0,20})?", fullmatch=True)


def read_by_nfd(content: bytes, now: float) -> dict[str, str]:
    """By source/local/local.go: comments, directives, what has expired, `key=value`."""
    labels, expiry = {}, now
    for line in content.decode().split("\n"):
        if line.startswith("# +expiry-time="):
            expiry = datetime.fromisoformat(line.removeprefix("# +expiry-time=").strip()).timestamp()
        elif line.strip() and not line.startswith("#") and expiry >= now:
            key, _, value = line.partition("=")
            labels[key] = value
    return labels


def no_pause(seconds: float) -> None:
    """Nobody reads here."""


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_is_what_is_read(labels):
    """Until it expires."""
    content = rendered(labels, 1_000_000.0)

    assert read_by_nfd(content, 999_999.0) == labels
    assert read_by_nfd(content, 1_000_001.0) == {}
    assert expiry_in(content.decode()) == 1_000_000.0


def test_a_file_comes_changes_and_goes(tmp_path):
    """Everybody may read it: the worker does not run as root. No temporary file stays."""
    path = tmp_path / "features.d/devherd"
    path.parent.mkdir()
    way = FeatureFile(path, pause=no_pause)

    assert way.write({"nvidia.com/gpu.count": "8"}) == ""
    assert read_by_nfd(path.read_bytes(), time.time()) == {"nvidia.com/gpu.count": "8"}
    assert path.stat().st_mode & 0o777 == 0o644
    way.write({"nvidia.com/gpu.count": "7"})
    assert read_by_nfd(path.read_bytes(), time.time()) == {"nvidia.com/gpu.count": "7"}
    assert [each.name for each in path.parent.iterdir()] == ["devherd"]

    way.remove()
    way.remove()
    assert list(path.parent.iterdir()) == []


def test_the_worker_is_woken_again_when_it_may_have_missed_the_file(tmp_path):
    """It reads at the first event, that of the temporary file, and for a second it does not listen."""
    path = tmp_path / "devherd"
    seen = []

    def pause(seconds):
        assert seconds > 1
        path.chmod(0o600)
        seen.append(read_by_nfd(path.read_bytes(), time.time()))

    way = FeatureFile(path, pause)
    way.write({"a.io/b": "1"})
    assert seen == [{"a.io/b": "1"}]
    assert path.stat().st_mode & 0o777 == 0o644

    way.write({"a.io/b": "1"})
    assert len(seen) == 1, "nothing has changed"


def test_a_file_that_stands_is_left_until_its_time_runs_out(tmp_path, monkeypatch):
    """Each writing wakes the worker. An hour later it is renewed, and so it is after the clock was set back."""
    path = tmp_path / "devherd"
    way = FeatureFile(path, pause=no_pause)
    now = time.time()
    monkeypatch.setattr(labels_module.time, "time", lambda: now)
    way.write({"a.io/b": "1"})
    first = path.stat().st_ino, path.read_bytes()
    now += 3500
    way.write({"a.io/b": "1"})
    assert (path.stat().st_ino, path.read_bytes()) == first

    now += 200
    way.write({"a.io/b": "1"})
    assert expiry_in(path.read_text()) == int(now + LIFETIME_SECONDS)

    now -= 1_000_000
    way.write({"a.io/b": "1"})
    assert expiry_in(path.read_text()) == int(now + LIFETIME_SECONDS)


def test_a_directory_that_is_not_there_is_said_with_the_cure(tmp_path):
    """Nobody would read a file in a directory of devherd's own making."""
    with pytest.raises(
        CannotLabelError, match="does not exist, the directory of Node Feature Discovery's worker: mount"
    ):
        FeatureFile(tmp_path / "absent/devherd").write({"a.io/b": "1"})
    assert not (tmp_path / "absent").exists()


def test_more_than_the_worker_reads_is_not_written(tmp_path):
    """It ignores larger files; what stands, stands."""
    way = FeatureFile(tmp_path / "devherd", pause=no_pause)
    way.write({"a.io/b": "1"})

    with pytest.raises(CannotLabelError, match="exceed the limit of 65536: leave some out"):
        way.write({f"a.io/{number:060}": "x" for number in range(1000)})
    assert read_by_nfd((tmp_path / "devherd").read_bytes(), time.time()) == {"a.io/b": "1"}
