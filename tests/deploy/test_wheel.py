"""The wheel has no path of the machine that built it, and is a wheel nevertheless."""

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from not_tested import not_tested
from wheel import ROOT, builder_paths, flags, places, rewrite, without_checkout

BILL = "devherd-1.dist-info/sboms/devherd.cyclonedx.json"
RECORD = "devherd-1.dist-info/RECORD"
REFERENCE = "path+file:///home/somebody/a checkout#devherd@0.1.0"


def fits(archive):
    """Whether RECORD names each file with its hash and size (the wheel's specification)."""
    [record] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    recorded = {name: (digest, size) for name, digest, size in csv.reader(archive.read(record).decode().splitlines())}
    expected = {record: ("", "")}
    for name in set(archive.namelist()) - {record}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
        expected[name] = (f"sha256={digest}", str(archive.getinfo(name).file_size))
    return recorded == expected


@pytest.fixture
def small(tmp_path):
    """A wheel with a bill as maturin writes it; the hash of a file is recorded wrongly where it is of the bill."""
    path = tmp_path / "devherd-1-py3-none-any.whl"
    bill = {"components": [], "metadata": {"component": {"bom-ref": REFERENCE, "components": [f"{REFERENCE} bin"]}}}
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"code").digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("devherd/_native.so", "code")
        archive.writestr(BILL, json.dumps(bill))
        archive.writestr(RECORD, f"devherd/_native.so,sha256={digest},4\n{BILL},sha256=old,1\n{RECORD},,\n")
    return path


def test_references_to_the_checkout_become_package_urls():
    """In either form of cargo's package ids; everything else stays."""
    assert without_checkout({"bom-ref": REFERENCE, "dependsOn": [f"{REFERENCE} bin-target-0", 1, None]}) == {
        "bom-ref": "pkg:cargo/devherd@0.1.0",
        "dependsOn": ["pkg:cargo/devherd@0.1.0 bin-target-0", 1, None],
    }
    assert without_checkout("path+file:///source/devherd#0.1.0") == "pkg:cargo/devherd@0.1.0"
    assert without_checkout("registry+https://github.com/rust-lang/crates.io-index#libc@0.2.1").endswith("libc@0.2.1")


def test_a_rewritten_wheel_has_a_record_that_fits(small):
    """An installer compares each file with it."""
    with zipfile.ZipFile(small) as archive:
        assert not fits(archive)
    rewrite(small)
    assert list(small.parent.iterdir()) == [small]
    with zipfile.ZipFile(small) as archive:
        assert fits(archive)
        assert archive.namelist() == ["devherd/_native.so", BILL, RECORD]
        assert archive.read("devherd/_native.so") == b"code"
        assert "home" not in archive.read(BILL).decode()


def test_a_path_of_the_builder_is_found_in_module_and_bill(small):
    """And nowhere a directory whose name begins alike."""
    assert builder_paths(small, ["/home/somebody"]) == [f"{BILL}: /home/somebody/", f"{BILL}: file:///"]
    rewrite(small)
    assert builder_paths(small, ["/home/somebody"]) == []
    with zipfile.ZipFile(small, "a") as archive:
        archive.writestr("devherd/other.so", b"\0/home/somebody/.cargo/registry\0/home/somebodyelse/\0")
    assert builder_paths(small, ["/home/somebody", "/home/some"]) == ["devherd/other.so: /home/somebody/"]


def test_flags_of_the_environment_stay():
    """Before those of the build: encoded, which cargo prefers, or separated by spaces."""
    named = {"/a b": "/c"}
    assert flags(named, {}) == "--remap-path-prefix=/a b=/c"
    assert flags(named, {"RUSTFLAGS": "-C debuginfo=1"}) == "-C\x1fdebuginfo=1\x1f--remap-path-prefix=/a b=/c"
    encoded = {"CARGO_ENCODED_RUSTFLAGS": "-g", "RUSTFLAGS": "-O"}
    assert flags(named, encoded) == "-g\x1f--remap-path-prefix=/a b=/c"


@pytest.mark.timeout(900)
def test_a_built_wheel_has_no_path_of_its_builder(tmp_path):
    """Compiled here, without optimisation and with all its debugging information, where each source would be named."""
    if not shutil.which("cargo"):
        not_tested("a wheel is compiled by cargo")
    if not Path(sys.executable).with_name("maturin").exists():
        not_tested("no maturin in the environment: `make build` installs it")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ""}
    environment["CARGO_PROFILE_DEV_DEBUG"] = "full"
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    [target] = [line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: ")]
    command = [sys.executable, ROOT / "rust/wheel.py", "--target", target, "--out", tmp_path, "--locked"]
    done = subprocess.run(
        [*command, "--profile", "dev", "--auditwheel", "skip"],
        env=environment, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.iterdir()
    assert builder_paths(wheel, [*places(os.environ), "/home", "/root", str(Path.home())]) == []
    with zipfile.ZipFile(wheel) as archive:
        assert fits(archive)
        names = archive.namelist()
        [module] = [name for name in names if name.endswith(".so")]
        assert b"/cargo/registry/src/" in archive.read(module)
        [bill] = [json.loads(archive.read(name)) for name in names if "/sboms/" in name]
    assert (bill["bomFormat"], bill["metadata"]["component"]["bom-ref"]) == ("CycloneDX", "pkg:cargo/devherd@0.1.0")
    references = [each["bom-ref"] for each in bill["components"]]
    depended = {each for entry in bill["dependencies"] for each in (entry["ref"], *entry.get("dependsOn", ()))}
    assert len(references) == len(set(references))
    assert depended <= {*references, "pkg:cargo/devherd@0.1.0"}
    assert [name for name in names if name.endswith("third-party/RUST-CRATES.txt")]
