"""An instance as files, and a real exporter process that shows it: for the tests beside it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import offered
import pytest
import scratch
from prometheus_client.parser import text_string_to_metric_families

from devherd import spool
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.config.web import Web
from devherd.counters import BY_RESOURCE_CHILDREN, BY_THE_SCANNER, Counters
from devherd.exporter.exposition import Writer
from devherd.proto import health_pb2, spool_pb2
from devherd.settings import Settings

PROGRAM = Path(__file__).with_name("exporter_process.py")
PATIENCE = 20.0


def eventually(look, what):
    """The first true answer of `look`; fails the test when none comes."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.02)
    pytest.fail(f"never happened: {what}")


def samples_of(families):
    """The samples of each family by its name, as Prometheus' own parser reads the page."""
    page = Writer(as_openmetrics=False).page(families).decode()
    return {family.name: family.samples for family in text_string_to_metric_families(page)}


@contextlib.contextmanager
def instances():
    """Makes instances; their processes and directories go with the test. Short paths: UNIX sockets go there."""
    made = []

    def make(**options):
        directory = scratch.directory()
        made.append((Instance(directory, **options), directory))
        return made[-1][0]

    try:
        yield make
    finally:
        for instance, directory in made:
            instance.end()
            shutil.rmtree(directory)


class Instance:
    """A run directory, and the exporter that is started on it."""

    def __init__(self, directory, listen="127.0.0.1:0"):
        self.run_dir = directory / "run"
        self.kubelet_dir = directory / "kubelet"
        self.standard_error = directory / "stderr"
        for name in ("offers/device-plugin", "state"):
            (self.run_dir / name).mkdir(parents=True)
        self.process = None
        self.configure(listen)

    def configure(self, listen, web=None, **options):
        """Leave the configuration as the loader does."""
        settings = Settings(run_dir=self.run_dir, kubelet_dir=self.kubelet_dir, listen=listen, **options)
        write_resolved(settings.resolved_config_file, ResolvedConfig(common=settings, web=web or Web()))

    def put(self, resource):
        """An offer, and the file of its resource child."""
        offered.put(self.run_dir, resource)
        spool.write(self._child_file(resource.name), spool_pb2.Resource(name=resource.name))

    def take_away(self, name):
        offered.take_away(self.run_dir, name)
        self._child_file(name).unlink()

    def _child_file(self, name):
        return spool.path_of(self.run_dir / "offers" / "device-plugin", spool.key_of(name))

    def put_state(self, name, **fields):
        path = spool.path_of(self.run_dir / "state", spool.key_of(name))
        spool.write(path, spool_pb2.ResourceState(name=name, **fields))

    def count(self, child, counting):
        """Count as a process of that name does after its predecessor: `counting` is called with its Counters."""
        if child == "scanner":
            path, kind, metrics = self.run_dir / "scanner.pb", spool_pb2.ScannerState, BY_THE_SCANNER
        else:
            path = spool.path_of(self.run_dir / "state", child.removeprefix("resource:"))
            kind, metrics = spool_pb2.ResourceState, BY_RESOURCE_CHILDREN
        state = spool.read_or_empty(path, kind)
        if child != "scanner":
            state.name = child.removeprefix("resource:").replace("_", "/")
        counters = Counters(metrics, state.counters)
        counting(counters)
        del state.counters[:]
        state.counters.extend(counters.series())
        spool.write(path, state)

    def put_scan(self, *problems, duration_seconds=0.004, timestamp_seconds=1_700_000_000.5, **times):
        summary = spool_pb2.ScanSummary(
            timestamp_seconds=timestamp_seconds, duration_seconds=duration_seconds, problems=problems, **times
        )
        spool.write(self.run_dir / "scan.pb", summary)

    def put_verdict(self, verdict, *sources):
        spool.write(self.run_dir / "verdicts.pb", health_pb2.Verdicts(verdicts=[verdict], sources=sources))

    def put_children(self, *children, supervisor_pid=None):
        """Children, started long ago unless they say otherwise."""
        pid = self.supervisor_pid if supervisor_pid is None else supervisor_pid
        spool.write(self.run_dir / "children.pb", spool_pb2.Children(children=children, supervisor_pid=pid))

    def start(self, **environment):
        ready = self.run_dir / "ready"
        with self.standard_error.open("w") as standard_error:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.run_dir), str(ready)],
                stderr=standard_error,
                env={"PATH": "/usr/bin:/bin", "DEVHERD_REVISION": "0123abc", **environment},
            )
        eventually(ready.exists, "the exporter is forked")
        return self

    @property
    def exporter_pid(self):
        return int((self.run_dir / "ready").read_text().split()[0])

    @property
    def supervisor_pid(self):
        return int((self.run_dir / "ready").read_text().split()[1])

    @property
    def log(self):
        return self.standard_error.read_text()

    @property
    def url(self):
        """Where it serves now: the last address that it logged."""
        return eventually(lambda: re.findall(r"serving (https?://\S+)", self.log), "it serves")[-1]

    def ask(self, path, method="GET", **headers):
        """Status, headers and body of an answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, method=method, headers=names)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.headers, answer.read().decode()

    def metrics(self):
        """The lines of /metrics that are samples, by series."""
        lines = [line for line in self.ask("/metrics")[2].splitlines() if not line.startswith("#")]
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.exporter_pid, signal.SIGKILL)
