"""The supervisord include: a real supervisord runs it, with a program that notes its signals in devherd's place."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "deploy" / "supervisord" / "devherd.conf"
STAND_IN = """\
import pathlib, signal, sys, time
told = pathlib.Path(sys.argv[1])
def hear(number, frame):
    with told.open("a") as file:
        print(signal.Signals(number).name, file=file)
    if number == signal.SIGTERM:
        sys.exit(0)
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, hear)
with told.open("a") as file:
    print("started", file=file)
print("a line of the log", file=sys.stderr, flush=True)
while True:
    time.sleep(60)
"""


class Site:
    """A supervisord with the include in a directory of its own."""

    def __init__(self, directory):
        self.told = directory / "told"
        self.log = directory / "devherd.log"
        self._conf = directory / "supervisord.conf"
        (directory / "stand_in.py").write_text(STAND_IN)
        (directory / "devherd.conf").write_text(self._include(directory / "stand_in.py"))
        self._conf.write_text(f"""
            [supervisord]
            nodaemon = true
            logfile = {directory}/supervisord.log
            pidfile = {directory}/supervisord.pid
            [unix_http_server]
            file = {directory}/s
            [supervisorctl]
            serverurl = unix://{directory}/s
            [rpcinterface:supervisor]
            supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
            [include]
            files = {directory}/devherd.conf
            """.replace("            ", ""))  # fmt: skip
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("supervisord"), "-c", self._conf],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _include(self, stand_in):
        text = INCLUDE.read_text()
        for ours, the_tests in (
            ("/opt/devherd/bin/devherd run", f"{sys.executable} {stand_in} {self.told}"),
            ("/var/log/devherd.log", str(self.log)),
        ):
            assert ours in text
            text = text.replace(ours, the_tests)
        return text

    def ctl(self, *arguments):
        program = Path(sys.executable).with_name("supervisorctl")
        return subprocess.run([program, "-c", self._conf, *arguments], capture_output=True, text=True, check=False)

    def lines(self):
        return self.told.read_text().split() if self.told.exists() else []

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None
            assert time.monotonic() < deadline, (self.lines(), self.ctl("status").stdout)
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.fixture
def site():
    """A supervisord whose devherd has started; its directory is short because a UNIX socket is put in it."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    running = Site(directory)
    try:
        running.wait_for(lambda: running.lines() == ["started"])
        yield running
    finally:
        running.end()
        shutil.rmtree(directory)


def test_a_sites_supervisord_runs_devherd(site):
    """It is up under the name devherd, and its log is where the include says."""
    site.wait_for(lambda: "RUNNING" in site.ctl("status", "devherd").stdout)
    assert site.log.read_text() == "a line of the log\n"


def test_a_reload_reaches_devherd(site):
    """The command that the include gives the administrator sends SIGHUP, and restarts nothing."""
    assert "supervisorctl signal HUP devherd" in INCLUDE.read_text()
    site.ctl("signal", "HUP", "devherd")
    site.wait_for(lambda: site.lines() == ["started", "SIGHUP"])


def test_devherd_is_stopped_by_sigterm(site):
    """It gets the time to stop its children and to unlink its sockets."""
    site.ctl("stop", "devherd")
    site.wait_for(lambda: site.lines() == ["started", "SIGTERM"])
    assert "STOPPED" in site.ctl("status", "devherd").stdout


def test_a_devherd_that_dies_is_started_again(site):
    """Also when it was killed outright."""
    os.kill(int(site.ctl("pid", "devherd").stdout), signal.SIGKILL)
    site.wait_for(lambda: site.lines() == ["started", "started"])
