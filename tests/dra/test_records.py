"""The record of prepared claims: two processes, a full or read-only disk, content that is not what was written."""

import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some
from not_tested import not_tested

from devherd import spool
from devherd.dra import records as records_module
from devherd.dra.records import ClaimRecords, RecordsError
from devherd.proto.spool_pb2 import PreparedClaim, PreparedClaims, PreparedDevice

DRIVER = "gpu.amd.com"


def claim(uid, device="gpu-0-128", driver=DRIVER):
    devices = [PreparedDevice(pool="node-1", device=device, requests=["gpu"])]
    return PreparedClaim(driver=driver, uid=uid, namespace="default", name=f"claim-{uid}", devices=devices)


def put(records, *claims):
    records.change(lambda known: known.update({(one.driver, one.uid): one for one in claims}))


def drop(records, uid):
    records.change(lambda known: known.pop((DRIVER, uid), None))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "dra" / "claims.pb"


@pytest.fixture
def records(file):
    return ClaimRecords(file, lock_seconds=0.2)


def test_what_one_process_notes_the_other_reads(file, records):
    other = ClaimRecords(file)
    put(records, claim("1"))
    put(other, claim("2"))
    drop(records, "1")

    assert {uid for _, uid in records.read()} == {uid for _, uid in other.read()} == {"2"}
    drop(other, "2")
    assert records.read() == other.read() == {}


def test_claims_of_an_earlier_boot_are_there(file, records):
    """The file lies where a boot leaves it; nothing in it depends on when it was written."""
    put(records, claim("1"))
    os.utime(file, (1.0, 1.0))
    assert ClaimRecords(file).read() == {(DRIVER, "1"): claim("1")}


def test_the_file_is_for_devherd_alone(file, records):
    put(records, claim("1"))
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_a_change_raises_leaves_the_claims_as_they_were(records):
    put(records, claim("1"))

    def fail(claims):
        claims.clear()
        raise KeyError

    with pytest.raises(KeyError):
        records.change(fail)
    assert len(records.read()) == 1
    put(records, claim("2"))  # nor is the lock held


DAMAGES = {
    "empty": lambda _: b"",
    "cut off": lambda content: content[:-3],
    "noise": lambda _: bytes(range(7, 255, 3)),
    "text": lambda _: b"{}",
    "another message": lambda _: spool.encoded(PreparedDevice(pool="a", device="b")),
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_and_said_once(file, records, caplog, damage):
    """Whoever looks into it may find out; new claims are noted."""
    put(records, claim("1"), claim("2"))
    file.write_bytes(DAMAGES[damage](file.read_bytes()))

    assert ClaimRecords(file).read() == {}
    assert records.read() == {}
    put(records, claim("3"))

    assert {uid for _, uid in ClaimRecords(file).read()} == {"3"}
    assert len(list(file.parent.glob("claims.pb.damaged-*"))) == 1
    assert [one.levelno for one in caplog.records] == [logging.ERROR]
    assert f"{file} is damaged" in caplog.text
    assert "deleted by force" in caplog.text


def fails(monkeypatch, error):
    """Let the file be replaced no more."""

    def replace(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(spool, "replace", replace)


@pytest.mark.parametrize(("error", "cure"), [(errno.ENOSPC, "make room in"), (errno.EDQUOT, "make room in")])
def test_on_a_full_disk_no_claim_is_noted_but_each_is_removed(file, records, monkeypatch, error, cure):
    """What was not noted is not promised, and pods can end."""
    put(records, claim("1"), claim("2"), claim("3"))
    fails(monkeypatch, error)

    with pytest.raises(RecordsError, match=cure) as caught:
        put(records, claim("4"))
    assert caught.value.may_heal
    inode = file.stat().st_ino
    for uid, left in (("2", {"1", "3"}), ("1", {"3"})):
        drop(records, uid)
        assert {of for _, of in ClaimRecords(file).read()} == {of for _, of in records.read()} == left
    assert file.stat().st_ino == inode
    drop(records, "3")
    assert ClaimRecords(file).read() == {}

    monkeypatch.undo()
    put(records, claim("5"))
    assert spool.read(file, PreparedClaims) == PreparedClaims(claims=[claim("5")])


@given(
    sizes=some.lists(some.integers(0, 300), min_size=1, max_size=6),
    order=some.lists(some.integers(0, 5), max_size=6),
)
def test_any_claims_are_removed_from_a_full_disk_in_any_order(tmp_path_factory, sizes, order):
    """However long they are."""
    file = tmp_path_factory.mktemp("claims") / "claims.pb"
    records = ClaimRecords(file)
    put(records, *(claim(str(number), "d" * size or "d") for number, size in enumerate(sizes)))
    expected = {str(number) for number in range(len(sizes))}
    with pytest.MonkeyPatch.context() as monkeypatch:
        fails(monkeypatch, errno.ENOSPC)
        for number in order:
            drop(records, str(number))
            expected.discard(str(number))
            assert {uid for _, uid in ClaimRecords(file).read()} == expected


@given(
    sizes=some.lists(some.integers(1, 40), min_size=2, max_size=6),
    removed=some.integers(0, 5),
    written=some.floats(0, 1),
)
def test_a_process_that_ends_while_claims_are_removed_from_a_full_disk_loses_none_silently(
    tmp_path_factory, sizes, removed, written
):
    """Until the file is cut it has the end of the old content, and perhaps only the beginning of the new."""
    file = tmp_path_factory.mktemp("claims") / "claims.pb"
    claims = [claim(str(number), "d" * size) for number, size in enumerate(sizes)]
    left = [one for one in claims if one.uid != str(removed % len(sizes))]
    old, new = (spool.encoded(PreparedClaims(claims=some_claims)) for some_claims in (claims, left))
    part = new[: round(written * len(new))]
    file.write_bytes(part + old[len(part) :])

    with pytest.MonkeyPatch.context() as monkeypatch:
        said = []
        monkeypatch.setattr(records_module.log, "error", lambda *text: said.append(text))
        read = list(ClaimRecords(file).read().values())
    assert said or all(one in read for one in left)


FULL_DISK = """
import sys
from pathlib import Path
from test_records import ClaimRecords, RecordsError, claim, drop, put

disk = Path(sys.argv[1])
file = disk / "dra/claims.pb"
records = ClaimRecords(file)
put(records, *(claim(str(number)) for number in range(20)))
with (disk / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError as error:
        assert error.errno == 28
try:
    put(records, claim("more", "d" * 20000))
except RecordsError as error:
    print(error)
for number in range(20):
    drop(records, str(number))
    assert len(ClaimRecords(file).read()) == 19 - number
print("all removed")
"""


def test_a_disk_that_is_really_full_takes_no_claim_and_gives_each_back(tmp_path):
    """As the kernel has it."""
    script, disk = tmp_path / "script.py", tmp_path / "disk"
    script.write_text(FULL_DISK)
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" "$3" "$1"'
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", disk, sys.executable, script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    if run.stderr.startswith(("unshare:", "mount:")):
        not_tested(f"no mounts of one's own here: {run.stderr}")
    what = f"the record of prepared claims, {disk}/dra/claims.pb, cannot be written"
    refusal = f"{what} — No space left on device — make room in {disk}/dra"
    assert run.stdout.splitlines() == [refusal, "all removed"], run.stderr


def test_a_read_only_directory_is_said(file, records, monkeypatch):
    """Waiting does not help; nothing was lost."""
    put(records, claim("1"))
    fails(monkeypatch, errno.EROFS)

    with pytest.raises(RecordsError, match=r"Read-only file system — make .* usable") as caught:
        put(records, claim("2"))
    assert not caught.value.may_heal
    assert len(records.read()) == 1


def test_a_process_that_hangs_with_the_lock_is_not_waited_for(file, records):
    """Its twin has other claims to prepare; the supervisor replaces it."""
    put(records, claim("1"))

    def hold(path, is_held):
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        is_held.set()
        time.sleep(600)

    context = multiprocessing.get_context("fork")
    is_held = context.Event()
    holder = context.Process(target=hold, args=(file.with_suffix(".lock"), is_held))
    holder.start()
    is_held.wait()
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RecordsError, match=r"another process of devherd has held its lock for 0\.2 s") as caught:
            put(records, claim("2"))
        assert caught.value.may_heal
        assert len(records.read()) == 1  # for which no lock is needed
    finally:
        holder.kill()
        holder.join()
    put(records, claim("2"))
    assert len(records.read()) == 2


def test_two_processes_lose_nothing_of_each_other(file):
    """Each change is made to what the other has left."""

    def work(first):
        records = ClaimRecords(file)
        for number in range(first, first + 25):
            put(records, claim(str(number)))

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(first,)) for first in (0, 100, 200)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(ClaimRecords(file).read()) == 75
