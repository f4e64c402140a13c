"""Device plugins that others have written, as they are published: fetched as packages, and built once."""

import fcntl
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from announcement import announce
from go_program import SAMPLE_PLUGIN

CRATE = "generic-device-plugin@0.0.1"
"""A framework on crates.io; its example `mock` is a plugin for /dev/mock*, at the fixed path /var/lib/kubelet."""
_MOCK = Path(__file__).parents[2] / ".tools" / "foreign_plugins" / CRATE / "bin" / "mock"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    SAMPLE_PLUGIN.build_before(item)
    if "rust_plugin" in getattr(item, "fixturenames", ()) and shutil.which("cargo"):
        with suppress(subprocess.CalledProcessError):  # the fixture meets it again
            build_rust_plugin(partial(announce, item.config))
    return (yield)


@pytest.fixture(scope="session")
def sample_plugin(tool):
    """The path of Kubernetes' sample device plugin: example.com/resource with the devices Dev-1 and Dev-2."""
    return SAMPLE_PLUGIN.built(tool("go"), print)


@pytest.fixture(scope="session")
def rust_plugin(tool):
    """The path of a plugin in Rust: mock.org/mock with a device for each /dev/mock*."""
    tool("cargo")
    return build_rust_plugin(print)


def build_rust_plugin(say):
    """Fetch and compile it, once, whoever else wants it at the same time: a minute, without optimisation."""
    root = _MOCK.parents[1]
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _MOCK.exists():
            say(f"{CRATE}: fetching and compiling, minutes the first time")
            protoc = Path(sys.executable).with_name("python-grpc-tools-protoc")
            command = ["cargo", "install", CRATE, "--locked", "--debug", "--example", "mock", "--root", root]
            environment = {"PROTOC": protoc, "CARGO_TARGET_DIR": root / "target", "CARGO_PROFILE_DEV_DEBUG": "0"}
            subprocess.run(["env", *(f"{name}={value}" for name, value in environment.items()), *command], check=True)
            shutil.rmtree(root / "target")
    return _MOCK
