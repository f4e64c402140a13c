"""`devherd run` beside `devherd sim kubelet`: what the other commands and the pages then say."""

import json
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest
import scratch
from command_line import COMMAND, devherd, eventually


class Herd:
    """A running instance and a running kubelet."""

    def __init__(self, directory):
        self.options = ("--run-dir", directory / "run", "--kubelet-dir", directory / "kubelet")
        config = directory / "config.yaml"
        config.write_text("simulated: [{name: example.com/gpu, count: 3}]\n")
        self.log = directory / "log"
        (directory / "kubelet").mkdir()
        with self.log.open("w") as log:
            self.kubelet = subprocess.Popen([*COMMAND, "sim", "kubelet", *self.options], stdout=log, stderr=log)
            command = [*COMMAND, "run", "--config", config, "--listen", "127.0.0.1:0", *self.options]
            self.supervisor = subprocess.Popen(command, stdout=log, stderr=log)

    def status(self):
        """`devherd status --output json`."""
        outcome = devherd("status", "--output", "json", *self.options)
        return json.loads(outcome.stdout) if outcome.code == 0 else None

    def get(self, path):
        """The body of a page of the exporter that serves now; empty while none does."""
        urls = eventually(lambda: re.findall(r"serving (http://\S+)", self.log.read_text()), "it serves")
        try:
            with urllib.request.urlopen(urls[-1] + path, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def end(self):
        """Stop both; the supervisor's exit code."""
        for process in (self.supervisor, self.kubelet):
            process.terminate()
        for process in (self.supervisor, self.kubelet):
            process.wait(timeout=30)
        return self.supervisor.returncode


@pytest.fixture
def herd():
    """Started, and ended whatever happens; short paths for the sockets."""
    directory = scratch.directory()
    running = Herd(directory)
    try:
        yield running
    finally:
        running.end()
        shutil.rmtree(directory)


def registered(status):
    """Whether every resource of a status is registered."""
    return status and status["resources"] and all(resource["registered"] for resource in status["resources"])


def test_an_allocation_is_seen_by_status_metrics_and_inventory(herd):
    """From the kubelet's own books, by way of PodResources."""
    eventually(lambda: registered(herd.status()), "the resource is registered")
    allocated = devherd("sim", "kubelet", "allocate", "example.com/gpu", 2, "--pod", "train", *herd.options)
    assert allocated.code == 0, allocated.stderr

    def devices():
        return herd.status()["resources"][0]["devices"]

    # An answer of the kubelet's is remembered for three seconds; a child writes within one what it has counted.
    eventually(lambda: sum(bool(device["allocated"]) for device in devices()) == 2, "the devices are allocated")
    allocations = 'devherd_allocations_total{resource_name="example.com/gpu"} 1.0'
    eventually(lambda: allocations in herd.get("/metrics"), "the allocation is counted")
    held = 'devherd_device_allocated{container="main",'
    eventually(lambda: herd.get("/metrics").count(held) == 2, "the metrics tell who holds them")
    metrics = herd.get("/metrics")
    assert 'devherd_registered{resource_name="example.com/gpu"} 1.0' in metrics
    assert (herd.get("/healthz"), herd.get("/readyz")) == ("ok\n", "ok\n")
    assert json.loads(herd.get("/api/v1/inventory"))["resources"][0]["devices"] == devices()
    assert re.search(r"example.com/gpu +3 +3 +2 +yes +RUNNING", devherd("status", *herd.options).stdout)


def test_a_killed_exporter_comes_back_and_is_counted(herd):
    """Its own successor reports the restart."""
    eventually(lambda: registered(herd.status()), "the resource is registered")
    herd.get("/healthz")

    assert devherd("ctl", *herd.options, "signal", "KILL", "exporter").code == 0

    counted = 'devherd_child_restarts_total{cause="signal",child="exporter"} 1.0'
    eventually(lambda: counted in herd.get("/metrics"), "the restart is counted")


def test_sigterm_ends_it_with_exit_code_0_and_status_says_so(herd):
    """A clean stop: no process, no socket, and the commands report that nothing runs."""
    eventually(lambda: registered(herd.status()), "the resource is registered")

    herd.supervisor.send_signal(signal.SIGTERM)

    assert herd.supervisor.wait(timeout=30) == 0
    assert devherd("status", *herd.options).code == 4
    assert devherd("ctl", *herd.options, "status").code == 4
    assert list((herd.options[3] / "device-plugins").glob("devherd-*")) == []
    assert "Traceback" not in herd.log.read_text()


def test_a_second_instance_on_the_same_run_directory_exits_with_3(herd):
    """One line that says who has it."""
    eventually(lambda: registered(herd.status()), "the resource is registered")

    outcome = devherd("run", *herd.options)

    assert outcome.code == 3
    assert "is in use" in outcome.error_line


def test_status_asks_the_kubelet_that_the_instance_serves(herd):
    """The run directory is enough to find it; the default kubelet directory is another one."""
    eventually(lambda: registered(herd.status()), "the resource is registered")
    run_dir = herd.options[:2]

    eventually(lambda: re.search(r"gpu +3 +3 +0 ", devherd("status", *run_dir).stdout), "none is allocated")


def test_it_runs_without_standard_streams(herd):
    """As under a service manager that gives none."""
    run_dir = herd.log.parent / "other"
    options = ("--run-dir", run_dir, "--kubelet-dir", herd.log.parent / "none", "--listen", "")
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "run", *map(str, options)]
    with subprocess.Popen(command) as other:
        eventually(lambda: devherd("status", *options[:4]).code == 0, "it runs")
        other.send_signal(signal.SIGTERM)
        assert other.wait(timeout=30) == 0


@pytest.mark.parametrize("variable", ["DEVHERD_TAKE_OVER", "DEVHERD_RESTART_FOR_DRIVER"])
def test_a_value_of_a_switch_that_is_neither_true_nor_false_is_refused(tmp_path, variable):
    """`DEVHERD_TAKE_OVER=yes` must not mean no."""
    outcome = devherd("run", "--run-dir", tmp_path, environment={variable: "yes"})

    assert outcome.code == 2
    assert outcome.error_line == (
        f"devherd: {variable}: `yes` — it is neither true nor false — set one of these, or unset it"
    )


def test_help_and_errors_of_run_are_as_those_of_other_commands():
    """It parses its options as they do."""
    assert devherd("run", "--help").stdout.startswith("usage: devherd run [-h]")
    for words, error in (
        (["--lisen", "x"], "unknown option `--lisen` — `devherd run` has no such option — did you mean `--listen`?"),
        (["--listen"], "wrong use of `devherd run` — argument --listen: expected one argument"),
        (["here"], "unknown argument `here` — `devherd run` takes no such argument"),
    ):
        outcome = devherd("run", *words)
        assert (outcome.code, error in outcome.stderr) == (2, True), outcome.stderr
