"""What processes use: the exporter as `process_*`, the supervisor and its children by name."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from exporter_instance import eventually
from not_tested import not_tested

from devherd.exporter.metrics import parsed_usage
from devherd.process import parsed_stat
from devherd.proto.spool_pb2 import Child

BIG = """
import sys, threading, time
held = b"x" * (64 << 20)
files = [open("/dev/null") for _ in range(20)]
def work():
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
worker = threading.Thread(target=work)
worker.start()
worker.join()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def big_process():
    """A process with 64 MiB, 23 open files and 0.2 s of CPU time behind it, of a thread that has ended."""
    with subprocess.Popen([sys.executable, "-c", BIG], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_memory_cpu_and_files_of_a_child_are_those_that_the_kernel_has(instance, big_process):
    """By the child's name, for as long as it runs."""
    instance.start()
    instance.put_children(
        Child(name="scanner", pid=big_process.pid, state="RUNNING"), Child(name="resource:a.b_c", state="BACKOFF")
    )

    metrics = instance.metrics()

    assert metrics['devherd_child_resident_memory_bytes{child="scanner"}'] > 64 << 20
    assert metrics['devherd_child_cpu_seconds_total{child="scanner"}'] >= 0.19
    assert metrics['devherd_child_open_fds{child="scanner"}'] == 23
    assert abs(metrics['devherd_child_start_time_seconds{child="scanner"}'] - time.time()) < 600
    assert {series for series in metrics if "memory" in series and "devherd" in series} == {
        'devherd_child_resident_memory_bytes{child="scanner"}',
        'devherd_child_resident_memory_bytes{child="supervisor"}',
    }


def test_a_child_that_is_gone_uses_nothing(instance, big_process):
    """Though the supervisor has not noticed yet."""
    instance.start()
    instance.put_children(Child(name="scanner", pid=big_process.pid, state="RUNNING"))
    assert any("child_cpu" in series and "scanner" in series for series in instance.metrics())

    big_process.kill()
    big_process.wait()

    assert not any("child_cpu" in series and "scanner" in series for series in instance.metrics())


def test_the_exporter_says_of_itself_what_every_program_does(instance):
    """Under the names that client libraries have made common."""
    instance.start()
    eventually(lambda: instance.url, "it serves")
    files = len(list(Path(f"/proc/{instance.exporter_pid}/fd").iterdir()))

    metrics = instance.metrics()

    assert {series for series in metrics if series.startswith("process_")} == {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }
    assert files <= metrics["process_open_fds"] <= files + 5
    assert metrics["process_max_fds"] == resource.prlimit(instance.exporter_pid, resource.RLIMIT_NOFILE)[0]
    assert metrics["process_resident_memory_bytes"] < metrics["process_virtual_memory_bytes"]


HIDDEN = """
import os
from devherd.exporter.metrics import usage_of_process
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(usage_of_process("1"), usage_of_process("self") is None)
"""


def test_a_host_that_hides_processes_from_each_other_costs_their_series_alone():
    """`hidepid` of proc(5): the page is there, with what the exporter uses itself."""
    mount = "mount -t proc -o hidepid=noaccess proc /proc"
    asked = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", HIDDEN],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in asked.stderr or "mount" in asked.stderr:
        not_tested(asked.stderr.strip())
    assert (asked.stdout, asked.stderr) == ("None False\n", "")


def test_a_process_may_have_any_name():
    """Blanks, brackets and figures in it move no field."""
    numbers = " ".join(str(number) for number in range(4, 53))
    stat = parsed_stat(f"7 (a) R 1 (b 2) S {numbers}\n")
    assert (stat.name, stat.state, stat.parent, stat.group) == ("a) R 1 (b 2", "S", 4, 5)
    used = parsed_usage(stat, "300 200 100 1 0 50 0\n", 9)

    assert used.cpu_seconds == (14 + 15) / os.sysconf("SC_CLK_TCK")
    assert used.started_after_boot_seconds == 22 / os.sysconf("SC_CLK_TCK")
    assert (used.resident_bytes, used.virtual_bytes) == (
        200 * os.sysconf("SC_PAGE_SIZE"),
        300 * os.sysconf("SC_PAGE_SIZE"),
    )
    assert used.open_files == 9
