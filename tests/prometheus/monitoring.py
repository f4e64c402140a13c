"""A real Prometheus and a real Alertmanager beside devherd, and a receiver of what they have to say.

The rules are those of deploy/prometheus, with the same expressions; how long something must hold is a second for all of
them, and scrapes and evaluations come every second.
"""

import asyncio
import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NODE = "sim-1"
PATIENCE = 60.0
SCRAPE_SECONDS = 1

_TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""Debian's Alertmanager reads its own here, and from nowhere else."""


class Receiver:
    """A webhook: every notification, with the moment at which it came."""

    def __init__(self):
        received = self.received = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.extend((time.monotonic(), alert) for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/"

    def find(self, name, status, since=0.0, **labels):
        """The first notification of an alert, and its moment."""
        for moment, alert in self.received:
            wanted = {"alertname": name, **labels}
            if moment >= since and alert["status"] == status and wanted.items() <= alert["labels"].items():
                return moment, alert
        return None

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Monitoring:
    """Both programs, for one exporter."""

    def __init__(self, directory, exporter, tool):
        programs = {name: tool(name) for name in ("prometheus", "prometheus-alertmanager")}
        self._directory = directory
        self._processes = []
        self.receiver = Receiver()
        self._write("alertmanager.yml", _alertmanager(self.receiver.url))
        alertmanager = self._start(
            *_with_templates(programs["prometheus-alertmanager"]),
            f"--config.file={directory}/alertmanager.yml",
            f"--storage.path={directory}/alertmanager",
            "--cluster.listen-address=",
        )
        self._write("rules.yml", _hurried((DEPLOY / "prometheus" / "rules.yaml").read_text()))
        self._write("prometheus.yml", _prometheus(exporter, alertmanager))
        self._prometheus = self._start(
            programs["prometheus"],
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/prometheus",
            "--rules.alert.resend-delay=1s",
        )

    async def query(self, expression):
        """The result of an expression: labels and value of each series."""
        return await asyncio.to_thread(self._query, expression)

    async def until(self, look, what):
        """The first true answer of `look`, which may be asynchronous."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = look()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            await asyncio.sleep(0.05)
        states = await asyncio.to_thread(self._get, "/api/v1/alerts")
        pytest.fail(f"never happened: {what}; alerts: {states}; received: {self.receiver.received}")

    async def notified(self, name, status, since=0.0, **labels):
        """The moment of a notification and the alert in it."""
        return await self.until(
            lambda: self.receiver.find(name, status, since, **labels), f"{name} {labels} is {status} at the receiver"
        )

    async def fires(self, name):
        """Whether Prometheus has an alert of this name firing."""
        return await self.query(f'ALERTS{{alertname="{name}",alertstate="firing"}}')

    def close(self):
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=30)
        self.receiver.close()

    def _query(self, expression):
        try:
            answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it has only just started
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def _get(self, path):
        with urllib.request.urlopen(f"http://{self._prometheus}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def _write(self, name, content):
        (self._directory / name).write_text(yaml.safe_dump(content))

    def _start(self, *command):
        """Start a program on a port that the kernel chooses; its address."""
        log = self._directory / f"{len(self._processes)}.log"
        with log.open("w") as standard_error:
            process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=standard_error)
        self._processes.append(process)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            if found := re.search(r'msg="Listening on" address=(\S+)', log.read_text()):
                return found[1]
            time.sleep(0.02)
        self.close()
        pytest.fail(f"{command[0]} does not serve: {log.read_text()}")


def _prometheus(exporter, alertmanager):
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {
                "job_name": "devherd",
                "honor_labels": True,
                "static_configs": [{"targets": [exporter], "labels": {"node": NODE}}],
            }
        ],
    }


def _alertmanager(receiver):
    route = {
        "receiver": "test",
        "group_by": ["..."],
        "group_wait": "10ms",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    return {
        "route": route,
        "receivers": [{"name": "test", "webhook_configs": [{"url": receiver, "send_resolved": True}]}],
    }


def _hurried(rules):
    """The same rules, none of which waits for longer than a second."""
    groups = yaml.safe_load(rules)
    for group in groups["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"
    return groups


def _with_templates(program):
    """Where the package was only unpacked, its files are put in their place for this one process."""
    if _TEMPLATES.exists():
        return [program]
    unpacked = Path(os.path.realpath(program)).parents[1] / "share"
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [
        "unshare",
        *rights,
        "--mount",
        "sh",
        "-c",
        f'mount --bind {unpacked} /usr/share && exec "$@"',
        "sh",
        program,
    ]
