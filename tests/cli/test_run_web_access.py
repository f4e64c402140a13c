"""`devherd run --web-config`: the exporter in its sandbox, with TLS and a password, as a real Prometheus scrapes it."""

import json
import shutil
import signal
import subprocess
import urllib.request

import bcrypt
import pytest
import scratch
from certificates import Authority
from command_line import COMMAND, eventually

from devherd_sim.testbed import free_port

PASSWORD = "correct horse"


class Herd:
    """An instance whose web configuration and certificates lie where no sandbox lets the exporter read unasked."""

    def __init__(self, directory, authority):
        self.port, self.socket = free_port(), directory / "web/http.sock"
        self.listen = f"127.0.0.1:{self.port},unix:{self.socket}"
        self.socket.parent.mkdir()
        self.config, self.log = directory / "config.yaml", directory / "log"
        self.config.write_text("simulated: [{name: example.com/gpu, count: 3}]\n")
        self.web_config = authority.directory / "web.yaml"
        authority.sign("server", "IP:127.0.0.1")
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5)).decode()
        self.web_config.write_text(
            "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
            f"basic_auth_users: {{prometheus: {hashed}}}\n"
        )
        self.options = ("--run-dir", directory / "run", "--kubelet-dir", directory / "kubelet")
        self.process = None

    def start(self, *options):
        """`devherd run`."""
        command = [*COMMAND, "run", "--config", self.config, *self.options, *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)

    def said(self, text):
        """Wait for a line of the log."""
        eventually(lambda: text in self.log.read_text(), f"{text!r} in the log")

    def end(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)


@pytest.fixture
def authority(tool, tmp_path):
    """Signs certificates."""
    return Authority(tool("openssl"), tmp_path / "certificates")


@pytest.fixture
def herd(authority):
    """Not started yet, ended whatever happens."""
    directory = scratch.directory()
    made = Herd(directory, authority)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(directory)


def curl(tool, url, *options):
    """Status and body."""
    command = [tool("curl"), "--silent", "--max-time", "20", "--write-out", "\n%{http_code}", url, *map(str, options)]
    body, _, status = subprocess.run(command, capture_output=True, text=True, check=False).stdout.rpartition("\n")
    return int(status), body


def test_a_reload_puts_the_pages_behind_tls_and_a_password_and_adds_a_socket(herd, authority, tool):
    """The exporter starts again in a sandbox that has their directories; a bad web configuration changes nothing."""
    herd.start("--listen", f"127.0.0.1:{herd.port}")
    herd.said(f"serving http://127.0.0.1:{herd.port}")
    simulated = herd.config.read_text()
    good = herd.web_config.read_text()
    herd.web_config.write_text("basic_auth_users: {prometheus: in plain text}\n")
    herd.config.write_text(f"{simulated}web_config: {herd.web_config}\n")
    herd.process.send_signal(signal.SIGHUP)
    herd.said(f"bad configuration in {herd.web_config}")
    assert curl(tool, f"http://127.0.0.1:{herd.port}/metrics")[0] == 200

    herd.web_config.write_text(good)
    herd.process.send_signal(signal.SIGHUP)
    herd.said(f"serving https://127.0.0.1:{herd.port}")

    trusting = ("--cacert", authority.certificate)
    assert curl(tool, f"https://127.0.0.1:{herd.port}/healthz", *trusting) == (200, "ok\n")
    assert curl(tool, f"https://127.0.0.1:{herd.port}/metrics", *trusting)[0] == 401
    assert curl(tool, f"https://127.0.0.1:{herd.port}/metrics", *trusting, "-u", f"prometheus:{PASSWORD}")[0] == 200
    assert "Traceback" not in herd.log.read_text()


def test_pages_are_served_at_a_socket_beside_the_port(herd, tool):
    """In a directory of its own; the socket goes with the instance."""
    herd.start("--listen", herd.listen)
    herd.said(f"serving unix:{herd.socket}")
    herd.said(f"serving http://127.0.0.1:{herd.port}")
    assert curl(tool, "http://devherd/healthz", "--unix-socket", herd.socket) == (200, "ok\n")
    herd.end()
    assert not herd.socket.exists()
    assert "Traceback" not in herd.log.read_text()


def test_prometheus_scrapes_by_tls_with_a_password(herd, authority, tool, tmp_path):
    """Without the password, or by plain HTTP, a target is down, and says why."""
    herd.start("--listen", herd.listen, "--web-config", herd.web_config)
    herd.said(f"serving https://127.0.0.1:{herd.port}")
    tls = {"scheme": "https", "tls_config": {"ca_file": str(authority.certificate)}}
    targets = {
        "right": tls | {"basic_auth": {"username": "prometheus", "password": PASSWORD}},
        "without-password": tls,
        "without-tls": {},
    }
    port = free_port()
    configuration = tmp_path / "prometheus.yml"
    scraped = {"scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{herd.port}"]}]}
    jobs = [{"job_name": name, **scraped, **settings} for name, settings in targets.items()]
    configuration.write_text(json.dumps({"scrape_configs": jobs}))
    command = [tool("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as prometheus:
        try:
            found = eventually(lambda: scraped_targets(port), "every target was scraped")
        finally:
            prometheus.terminate()
    assert found["right"] == ("up", "")
    assert found["without-password"] == ("down", "server returned HTTP status 401 Unauthorized")
    assert found["without-tls"][0] == "down"


def scraped_targets(port):
    """Health and last error by job, once all have been scraped and what is right is up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=30) as answer:
            active = json.load(answer)["data"]["activeTargets"]
    except OSError:
        return None
    found = {target["labels"]["job"]: (target["health"], target["lastError"]) for target in active}
    return found if found and "unknown" not in {health for health, _ in found.values()} else None
