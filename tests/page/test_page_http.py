"""The status page as it is served: compressed, made once per change, and not sent again to who has it."""

import gzip
import os
import time
import urllib.request
from unittest import mock

import pytest

from devherd import spool
from devherd.exporter.status_page import page as page_module
from devherd.exporter.status_page.page import MOST_VIEWS, MadePages
from devherd.exporter.status_page.view import View
from devherd.history import History
from devherd.instance import read
from devherd.instance.files import announce_standby, open_standby_file
from devherd.instance.read import read_instance
from devherd.process import Heartbeats
from devherd.proto.health_pb2 import Held, Verdict
from devherd.proto.spool_pb2 import Child, Configuration, Device, Offer, Problem, Standby
from devherd.settings import Settings

GPU = Offer(name="example.com/gpu", vendor="simulated", devices=[Device(id="0"), Device(id="1")])
LOST = Offer(name="example.com/gpu", vendor="simulated", devices=[Device(id="0", reasons=["xid"]), Device(id="1")])


def test_the_page_shows_the_instance(instance):
    """With a policy that lets nothing be loaded from elsewhere."""
    instance.put(GPU)
    instance.put_scan()
    instance.start()

    status, headers, page = instance.ask("/")

    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "text/html; charset=utf-8", "no-cache")
    assert "example.com/gpu" in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
    assert "unsafe" not in policy


def test_script_and_style_are_kept_for_ever_at_the_address_that_names_their_build(instance):
    """A browser asks for them once; after an upgrade the page names others."""
    instance.put(GPU)
    instance.start()
    page = instance.ask("/")[2]

    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        _, found, rest = page.partition(f'"{name}?')
        status, headers, _ = instance.ask(f"/{name}?{rest.partition(chr(34))[0]}")
        assert (bool(found), status, headers["Content-Type"]) == (True, 200, f"{kind}; charset=utf-8")
        assert headers["Cache-Control"] == "max-age=31536000, immutable"
        assert instance.ask(f"/{name}?other")[1]["Cache-Control"] == "no-store"
        assert instance.ask(f"/{name}", method="DELETE")[0] == 405


def test_a_reader_that_has_the_page_is_told_so_until_it_says_something_else(instance):
    """That there was a scan meanwhile is in a header."""
    instance.put(GPU)
    instance.put_scan(timestamp_seconds=1_000_000_000)
    instance.start()

    _, headers, page = instance.ask("/")
    tag = headers["ETag"]
    assert f'data-tag="{tag.replace(chr(34), "&quot;")}"' in page
    instance.put_scan(timestamp_seconds=1_000_000_005)
    status, headers, body = instance.ask("/", If_None_Match=tag)
    assert (status, body, headers["ETag"], headers["Devherd-Scanned"]) == (304, "", tag, "2001-09-09T01:46:45Z")
    assert "Content-Length" not in headers
    assert "2001-09-09 01:46:45Z" in instance.ask("/")[2]

    instance.put(LOST)
    status, headers, page = instance.ask("/", If_None_Match=tag)
    assert status == 200
    assert headers["ETag"] != tag
    assert "Unhealthy: xid" in page


def test_the_page_is_compressed_for_who_takes_that(instance):
    """The same page."""
    instance.put(GPU)
    instance.start()

    plain = instance.ask("/")
    request = urllib.request.Request(instance.url + "/", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(answer.read()).decode() == plain[2]
    assert "Content-Encoding" not in plain[1]
    assert plain[1]["Vary"] == "Accept-Encoding"


def test_views_have_pages_of_their_own(instance):
    """By the query of the address."""
    instance.put(GPU)
    instance.put(Offer(name="example.com/nic", devices=[Device(id="eth0")]))
    instance.start()

    whole, gpus, none = (instance.ask(f"/{query}")[2] for query in ("", "?resource=example.com/gpu", "?filter=nothing"))

    assert 'id="example.com/nic/eth0"' in whole
    assert 'id="example.com/gpu/1"' in gpus
    assert 'id="example.com/nic' not in gpus
    assert "No device matches." in none


@pytest.fixture
def pages(instance):
    """The pages of an instance without a process, and the calls that make one."""
    instance.put(GPU)
    instance.put_scan(timestamp_seconds=1.0)
    heartbeats = Heartbeats(2)
    heartbeats.beat(1)
    with mock.patch.object(page_module, "render", side_effect=page_module.render) as render:
        yield MadePages(Settings(run_dir=instance.run_dir), heartbeats), render


def test_a_page_is_made_once_for_all_who_ask(pages):
    """However often they do."""
    made, render = pages
    first = made.answer(View(), {}, may_lag=False)
    assert [made.answer(View(), {}, may_lag=lag).body for lag in (True, False)] == [first.body] * 2
    assert render.call_count == 1


def scan_later(instance):
    instance.put_scan(timestamp_seconds=2.0)


def test_a_scan_that_finds_nothing_new_makes_no_page_for_who_has_one(instance, pages):
    """For others it does: the page says when that was."""
    made, render = pages
    first = made.answer(View(), {}, may_lag=False)
    scan_later(instance)
    assert made.answer(View(), {}, may_lag=True).body == first.body
    assert render.call_count == 1
    later = made.answer(View(), {}, may_lag=False)
    assert b"00:00:02Z" in gzip.decompress(later.body)
    assert (render.call_count, later.headers["ETag"]) == (2, first.headers["ETag"])


def happen(instance):
    history = History(instance.run_dir / "history", "scanner")
    history.note("reload", "configuration reloaded")
    assert history.keep()


def doubt(instance):
    spool.write(instance.run_dir / "config-warnings.pb", Configuration(warnings=["a name matches nothing"]))


HELD = Verdict(device="0", held=[Held(reason="xid", source="kernel-log")])


@pytest.mark.parametrize(
    "change",
    [
        lambda instance: instance.put(LOST),
        lambda instance: instance.put(Offer(name="example.com/nic")),
        lambda instance: instance.take_away(GPU.name),
        lambda instance: instance.put_state(GPU.name, registered=True),
        lambda instance: instance.put_verdict(HELD),
        lambda instance: instance.put_scan(Problem(error="no such thing"), timestamp_seconds=2.0),
        doubt,
        lambda instance: instance.put_children(Child(name="scanner", state="BACKOFF"), supervisor_pid=1),
        happen,
    ],
    ids=["device", "new resource", "resource gone", "registration", "verdict", "problem", "doubt", "process", "event"],
)
def test_whatever_changes_is_on_the_next_page(instance, pages, change):
    """Also for a reader that has one."""
    made, _ = pages
    before = made.answer(View(), {}, may_lag=True).headers["ETag"]
    change(instance)
    assert made.answer(View(), {}, may_lag=True).headers["ETag"] != before


def test_each_file_that_an_instance_is_read_from_is_looked_at(instance, pages):
    """But what the scanner and NVML count, which is on no page; of a scan its problems and its time count."""
    made, _ = pages
    settings = Settings(run_dir=instance.run_dir)
    with (
        mock.patch.object(spool, "read_or_empty", side_effect=spool.read_or_empty) as one,
        mock.patch.object(spool, "read_all", side_effect=spool.read_all) as all_of,
        mock.patch.object(spool, "read", side_effect=spool.read) as whole,
    ):
        read_instance(settings)
    files = {call.args[0] for call in (*one.mock_calls, *whole.mock_calls)}
    files |= {spool.path_of(call.args[0], "new") for call in all_of.mock_calls}
    assert {settings.config_warnings_file, settings.instance_file, settings.children_file} < files
    counts = {settings.scanner_state_file, settings.counts_file, spool.path_of(settings.findings_directory, "nvml")}
    for file in files - counts - {settings.scan_file}:
        before = list(made._state())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        assert list(made._state()) != before, file


def test_a_pod_that_comes_is_on_the_next_page(pages):
    """As the kubelet says."""
    made, _ = pages
    before = made.answer(View(), {}, may_lag=True).headers["ETag"]
    pod = {(GPU.name, "0"): [{"namespace": "n", "pod": "p", "container": "c"}]}
    after = made.answer(View(), pod, may_lag=True)
    assert after.headers["ETag"] != before
    assert b"n/p (c)" in gzip.decompress(after.body)


def test_a_process_that_falls_silent_is_on_the_next_page(instance, pages):
    """No file says so."""
    made, _ = pages
    instance.put_children(Child(name="scanner", state="RUNNING", heartbeat_slot=1), supervisor_pid=1)
    assert b"no heartbeat" not in gzip.decompress(made.answer(View(), {}, may_lag=True).body)
    with mock.patch("time.monotonic", return_value=10.0**9):
        after = gzip.decompress(made.answer(View(), {}, may_lag=True).body)
    assert b"scanner: no heartbeat for more than 10 s" in after


def test_a_scan_that_is_overdue_is_on_the_next_page_also_of_a_reader_that_has_one(instance, pages):
    """Defect: no file says so, and an open page went on to say that all is well."""
    made, _ = pages
    instance.put_scan(timestamp_seconds=1.0, monotonic_seconds=1000.0, period_seconds=5.0)
    for clock, ago in (
        (1029.0, b""),
        (1031.0, b"the last scan was 31 s ago"),
        (1093.0, b"the last scan was 1 min 33 s ago"),
    ):
        with mock.patch("time.monotonic", return_value=clock):
            body = gzip.decompress(made.answer(View(), {}, may_lag=True).body)
        assert ago in body
        assert (b"the last scan was" in body) == bool(ago)


def test_a_full_run_directory_and_a_second_instance_are_on_the_next_page(instance, pages, monkeypatch):
    """Defect: `devherd status` alone showed them."""
    made, _ = pages

    def body() -> bytes:
        return gzip.decompress(made.answer(View(), {}, may_lag=True).body)

    assert b"is full" not in body()
    monkeypatch.setattr(read, "FULL_BYTES", 1 << 62)
    assert b"is full: what is shown here may be old; make room there" in body()
    descriptor = open_standby_file(Settings(run_dir=instance.run_dir).standby_file)
    try:
        announce_standby(descriptor, Standby(since=time.time() - read.LONG_STANDBY_SECONDS - 1))
        assert b"two instances are meant for this node" in body()
    finally:
        os.close(descriptor)
    assert b"two instances" not in body()


def test_views_that_were_not_asked_for_lately_are_forgotten(pages):
    """Everybody who types in the filter makes some."""
    made, render = pages
    for number in range(MOST_VIEWS + 1):
        made.answer(View(), {}, may_lag=True)
        made.answer(View(filter=str(number)), {}, may_lag=True)
    assert len(made._made) == MOST_VIEWS
    assert render.call_count == MOST_VIEWS + 2
    made.answer(View(filter="0"), {}, may_lag=True)
    assert render.call_count == MOST_VIEWS + 3
