"""One instance for a run directory and for a kubelet directory."""

import os
import signal

from instance import open_paths, until

from devherd import spool
from devherd.settings import Settings
from devherd.supervisor.lock import Locks

RESOURCE = "resource:example.com_first"


def plugins(instance):
    """The kubelet's directory for plugins, made."""
    instance.settings.plugin_directory.mkdir(parents=True, exist_ok=True)
    return instance.settings.plugin_directory


def test_a_second_instance_on_the_same_run_directory_is_refused(make_instance):
    """Exit code 3, a line that names the holder, and the first is not disturbed."""
    first = make_instance().up()
    before = first.children()
    spool_file = spool.path_of(first.settings.resources_directory, "example.com_first")
    written = spool_file.stat().st_mtime_ns
    second = make_instance()
    seen = len(second.stderr())
    assert second.start().ended() == 3
    # both write to one file here, and children of the first may still be starting
    [refusal] = [line for line in second.stderr()[seen:].splitlines() if " says hello " not in line]
    assert refusal.startswith(f"devherd: the run directory {first.settings.run_dir} is in use — ")
    assert f"process {first.process.pid}" in refusal
    assert first.children() == before
    assert spool_file.stat().st_mtime_ns == written
    assert "RUNNING" in first.ctl("status", "scanner")


def test_a_second_instance_on_the_same_kubelet_directory_is_refused(make_instance):
    """Also with a run directory of its own; nothing of ours is put into the kubelet's directory."""
    first = make_instance()
    directory = plugins(first)
    first.up()
    second = make_instance(run_dir="other").start()
    assert second.ended() == 3
    assert second.stderr().startswith(f"devherd: the kubelet directory {directory} is in use — ")
    assert second.stderr().count("\n") == 1
    assert not list(directory.iterdir())


def test_a_kubelet_directory_that_comes_later_is_locked_then(make_instance):
    """Two instances wait for the kubelet; one gets its directory, the other ends with exit code 3."""
    instances = [make_instance(run_dir=name).up() for name in ("one", "two")]
    plugins(instances[0])
    until(lambda: any(instance.process.poll() is not None for instance in instances), "the end of one")
    ended = [instance for instance in instances if instance.process.poll() is not None]
    assert [instance.process.returncode for instance in ended] == [3]
    assert "is in use — another instance" in ended[0].stderr()


def test_a_kubelet_directory_that_is_made_again_is_locked_again(make_instance):
    """The lock follows the path, not the directory that once had it."""
    first = make_instance()
    directory = plugins(first)
    first.up()
    directory.rename(directory.with_name("old"))
    plugins(first)
    until(lambda: str(directory) in open_paths(first.process.pid).values(), "the new lock")
    assert make_instance(run_dir="other").start().ended() == 3


def test_children_do_not_keep_the_locks(make_instance):
    """After `kill -9` of the supervisor the next instance starts at once, whatever its children still do."""
    first = make_instance()
    plugins(first)
    pid = first.up().running(RESOURCE).pid
    assert not {str(first.settings.lock_file), str(first.settings.plugin_directory)} & set(open_paths(pid).values())
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    make_instance(run_dir="other").up()


def test_a_run_directory_of_an_earlier_instance_is_closed_to_others(tmp_path):
    """Defect: one whose instance was killed, and had left its reserve, kept its mode, and with it what all may read."""
    settings = Settings(run_dir=tmp_path / "run", kubelet_dir=tmp_path / "kubelet")
    settings.run_dir.mkdir(mode=0o755)
    settings.reserve_file.touch()
    (settings.run_dir / ".verdicts.pb.new").touch()
    locks = Locks(settings)
    locks.take()
    locks.release()
    assert settings.run_dir.stat().st_mode & 0o7777 == 0o700


def test_a_run_directory_that_holds_other_things_is_not_closed_to_others(make_instance):
    """`--run-dir /tmp` must not take /tmp from everybody else, not at the second start either."""
    instance = make_instance()
    (instance.settings.run_dir / "theirs").touch()
    instance.settings.run_dir.chmod(0o1777)
    for _ in range(2):
        instance.up()
        instance.process.terminate()
        instance.ended()
    assert instance.settings.run_dir.stat().st_mode & 0o7777 == 0o1777
