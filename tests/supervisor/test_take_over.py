"""An instance that takes over: it prepares everything beside the one that runs, and waits for its end."""

import os
import re
import signal

import pytest
from instance import is_alive, until

from devherd.instance.files import read_standby

RESOURCE = "resource:example.com_first"
STANDBY = r"\nstandby (\d+): another instance runs here"


def standing_by(instance):
    """Start one more beside an instance that runs, and wait until it says that it stands by."""
    instance.start(takes_over=True)
    until(lambda: re.search(STANDBY, instance.stderr()), "a standby")
    return instance


def standby_of(instance):
    """The process that answers for an instance which stands by."""
    return int(re.findall(STANDBY, instance.stderr())[-1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_takes_over_when_the_other_one_has_ended(make_instance, number):
    """However that ended; nobody was disturbed before, and its first scan was rehearsed meanwhile."""
    first = make_instance().up()
    before = first.children()
    second = standing_by(make_instance())
    standby = standby_of(second)
    assert "rehearsed beside ['example.com_first']" in second.stderr()
    assert "standing by: the run directory" in second.stderr()
    assert f"process {first.process.pid}" in second.stderr()
    assert first.children() == before
    os.kill(first.process.pid, number)
    first.ended()
    for name in ("scanner", "exporter", RESOURCE):
        second.running(name)
    assert "taking over after " in second.stderr()
    assert not is_alive(standby)
    assert not any(is_alive(child.pid) for child in before.values())


def test_a_file_that_was_edited_while_it_stood_by_is_read_soon_after_the_take_over(make_instance):
    """Defect: it stood by for hours, and what it had read before was in force until somebody reloaded."""
    first = make_instance().up()
    second = standing_by(make_instance())
    second.order("bad-config")
    os.kill(first.process.pid, signal.SIGTERM)
    second.running(RESOURCE)
    until(lambda: "the old one stays: bad configuration in tiny.yaml" in second.stderr(), "it is read")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_one_that_ends_while_it_stands_by_leaves_nothing_behind(make_instance, number):
    """The roll-out was taken back: the one that runs goes on as if nothing had been."""
    first = make_instance().up()
    before = first.children()
    second = standing_by(make_instance())
    standby = standby_of(second)
    os.kill(second.process.pid, number)
    assert second.ended() == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    until(lambda: not is_alive(standby), "the end of its process")
    assert "Traceback" not in second.stderr()
    assert first.children() == before
    third = standing_by(make_instance())
    os.kill(first.process.pid, signal.SIGTERM)
    third.running(RESOURCE)


def test_a_sigterm_while_it_imports_ends_it_before_it_stands_by(make_instance):
    """Defect: the import lost what the signal raised, and one that was to end stood by, and took over."""
    first = make_instance().up()
    before = first.children()
    first.order("sigterm-while-importing")
    second = make_instance().start(takes_over=True)
    assert second.ended() == 0
    assert "the import goes on" in second.stderr()
    assert "standing by" not in second.stderr()
    assert first.children() == before


def test_of_two_that_start_together_one_runs_and_the_other_stands_by(make_instance):
    """And takes over when the first ends."""
    both = [make_instance().start(takes_over=True) for _ in range(2)]
    until(lambda: re.search(STANDBY, both[0].stderr()), "a standby")
    until(lambda: any(each.children() for each in both), "a herd")
    running, other = sorted(both, key=lambda each: not each.children())
    running.running(RESOURCE)
    os.kill(running.process.pid, signal.SIGTERM)
    assert running.ended() == 0
    other.running(RESOURCE)


def test_one_that_could_not_do_its_work_does_not_take_over(make_instance):
    """Its rehearsal failed: it ends, its pod is never ready, and the old one stays."""
    first = make_instance().up()
    before = first.children()
    first.order("bad-rehearsal")
    second = make_instance().start(takes_over=True)
    assert second.ended() == 1
    assert "RuntimeError: a rehearsal that goes wrong" in second.stderr()
    assert "devherd: this instance cannot take over — its rehearsal failed, as logged above — " in second.stderr()
    assert "standby " not in second.stderr()
    assert first.children() == before


def rehearsing(make_instance):
    """One that runs, one that stands beside it with a rehearsal that takes long, and the order that keeps it so."""
    first = make_instance().up()
    order = first.order("slow-rehearsal")
    second = make_instance().start(takes_over=True, rehearsal=0.2)
    until(lambda: re.search(r"\nrehearsing \d+: another instance runs here", second.stderr()), "one that is not ready")
    return first, second, order


def test_one_whose_rehearsal_takes_long_is_not_ready_before_its_end(make_instance):
    """Defect: after half a minute it was, untried, and the roll-out ended the other one for it."""
    first, second, order = rehearsing(make_instance)
    before = first.children()
    assert "the rehearsal takes longer than 0 s: another instance runs here" in second.stderr()
    assert "standing by: " not in second.stderr()
    assert not re.search(STANDBY, second.stderr())
    assert read_standby(first.settings.standby_file) is None
    order.unlink()
    until(lambda: re.search(STANDBY, second.stderr()), "a standby")
    until(lambda: read_standby(first.settings.standby_file), "it says that it stands by")
    [unready] = map(int, re.findall(r"\nrehearsing (\d+):", second.stderr()))
    assert not is_alive(unready)
    assert first.children() == before
    os.kill(first.process.pid, signal.SIGTERM)
    second.running(RESOURCE)
    assert not is_alive(standby_of(second))


def test_one_whose_rehearsal_takes_long_takes_over_when_the_other_one_ends_before(make_instance):
    """Pods want their devices: nobody else has them."""
    first, second, order = rehearsing(make_instance)
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: "taking over after " in second.stderr(), "it takes over")
    order.unlink()
    second.running(RESOURCE)
    assert not re.search(STANDBY, second.stderr())


def test_one_whose_rehearsal_fails_after_long_does_not_take_over(make_instance):
    """As one whose rehearsal fails at once."""
    first, second, order = rehearsing(make_instance)
    before = first.children()
    first.order("bad-rehearsal")
    order.unlink()
    assert second.ended() == 1
    assert "devherd: this instance cannot take over — its rehearsal failed, as logged above — " in second.stderr()
    assert not re.search(STANDBY, second.stderr())
    assert first.children() == before


def test_one_that_is_to_end_while_it_rehearses_does(make_instance):
    """The roll-out was taken back."""
    first, second, _ = rehearsing(make_instance)
    [unready] = map(int, re.findall(r"\nrehearsing (\d+):", second.stderr()))
    os.kill(second.process.pid, signal.SIGTERM)
    assert second.ended() == 0
    until(lambda: not is_alive(unready), "the end of its process")
    assert first.children()


def test_one_that_cannot_write_to_the_run_directory_does_not_take_over(make_instance):
    """It could not do its work: it says what it cannot write, and ends."""
    first = make_instance().up()
    first.settings.standby_file.mkdir()
    second = make_instance().start(takes_over=True)
    assert second.ended() == 2
    directory = first.settings.run_dir
    said = f"devherd: cannot use the run directory {directory} — {first.settings.standby_file}: Is a directory — "
    assert said in second.stderr()
    assert first.children()


def test_one_with_a_bad_configuration_does_not_take_over(make_instance):
    """It ends with exit code 2."""
    first = make_instance().up()
    first.order("bad-config")
    second = make_instance().start(takes_over=True)
    assert second.ended() == 2
    assert "standing by" not in second.stderr()


def test_it_also_waits_for_one_with_another_run_directory(make_instance):
    """Which has the kubelet's directory."""
    first = make_instance()
    first.settings.plugin_directory.mkdir(parents=True)
    first.up()
    second = make_instance(run_dir="other").start(takes_over=True)
    until(lambda: "standing by: the kubelet directory" in second.stderr(), "a standby")
    assert not second.children()
    os.kill(first.process.pid, signal.SIGTERM)
    second.running(RESOURCE)


def test_a_run_directory_that_is_removed_meanwhile_is_made_and_locked_again(make_instance):
    """What it waited for is a file that nobody else sees any more."""
    first = make_instance().up()
    second = standing_by(make_instance())
    first.settings.lock_file.unlink()
    os.kill(first.process.pid, signal.SIGTERM)
    second.running(RESOURCE)
    assert make_instance().start().ended() == 3
