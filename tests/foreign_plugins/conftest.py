"""Device plugins that others have written, as they are published: fetched as packages, and built once."""

import fcntl
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from announcement import announce
from go_program import SAMPLE_PLUGIN

CRATE = "generic-device-plugin@0.0.1"
"""A framework on crates.io; its example `mock` is a plugin for /dev/mock*, at the fixed path /var/lib/kubelet."""
_MOCK = Path(__file__).parents[2] / ".tools" / "foreign_plugins" / CRATE / "bin" / "mock"


def pytest_collection_finish(session):
    SAMPLE_PLUGIN.build_before(session)
    wanted = any("rust_plugin" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and shutil.which("cargo") and not session.config.option.collectonly:
        build_rust_plugin(partial(announce, session.config))


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
    """Fetch and compile it, once, whoever else wants it at the same time: two minutes."""
    root = _MOCK.parents[1]
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _MOCK.exists():
            say(f"{CRATE}: fetching and compiling, minutes the first time")
            protoc = Path(sys.executable).with_name("python-grpc-tools-protoc")
            command = ["cargo", "install", CRATE, "--locked", "--example", "mock", "--root", root]
            environment = {"PROTOC": str(protoc), "CARGO_TARGET_DIR": str(root / "target")}
            subprocess.run(["env", *(f"{name}={value}" for name, value in environment.items()), *command], check=True)
            shutil.rmtree(root / "target")
    return _MOCK
