"""The wheel has no path of the machine that built it, and is a wheel nevertheless. One is compiled in tests/toy."""

import base64
import hashlib
import json
import zipfile

import pytest
from wheel import builder_paths, flags, rewrite, without_checkout
from wheel_record import fits

BILL = "devherd-1.dist-info/sboms/devherd.cyclonedx.json"
RECORD = "devherd-1.dist-info/RECORD"
REFERENCE = "path+file:///home/somebody/a checkout#devherd@0.1.0"


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
