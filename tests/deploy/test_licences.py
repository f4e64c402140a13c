"""The wheel brings the licences of the Rust crates and of the standard library that are linked into it."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from licences import CRATES, Crate, document, linked, read, standard_library
from not_tested import not_tested

ROOT = Path(__file__).parents[2]
FILES = ("Cargo.toml", "Cargo.lock", "LICENSE", "pyproject.toml", "python", "rust")
MIT = "Permission is hereby granted\n\nTHE SOFTWARE IS PROVIDED"


def node(name, **dependencies):
    """What a crate needs: name and kind of each, where None is the usual one."""
    deps = [{"pkg": each, "dep_kinds": [{"kind": kind}]} for each, kind in dependencies.items()]
    return {"id": name, "deps": deps}


def package(name, kind="lib"):
    return {"id": name, "name": name, "version": "1.0", "targets": [{"kind": [kind]}]}


def test_what_only_builds_or_tests_is_not_linked():
    """Nor macros, which run in the compiler, with what they need; what any linked crate needs is."""
    metadata = {
        "packages": [package(name) for name in ("own", "a", "b", "builds", "tests", "of_macro")]
        + [package("macro", "proc-macro")],
        "resolve": {
            "root": "own",
            "nodes": [
                node("own", a=None, builds="build", tests="dev", macro=None),
                node("a", b=None),
                node("b"),
                node("macro", of_macro=None),
            ],
        },
    }
    assert [each["name"] for each in linked(metadata)] == ["a", "b"]


def test_a_text_is_there_once_with_all_crates_that_it_is_of():
    """And each crate with its licence and where it comes from."""
    one = Crate("a", "1.0", "MIT", "https://example.org/a", (MIT,))
    other = Crate("b", "2.0", "MIT OR Apache-2.0", "", ("Apache License", MIT))
    text = document([one, other])
    assert "a 1.0: MIT (https://example.org/a)\nb 2.0: MIT OR Apache-2.0\n" in text
    assert text.count(MIT) == 1
    assert "\na 1.0, b 2.0\n" in text


def test_a_crate_without_a_text_is_refused(tmp_path):
    """It could not be given on; a text under another name is found where the crate names it."""
    crate = package("bare") | {"manifest_path": tmp_path / "Cargo.toml", "license": "MIT", "repository": None}
    (tmp_path / "Cargo.toml").touch()
    with pytest.raises(ValueError, match=r"^no licence text in \S+ — bare is linked into the wheel"):
        read(crate)
    (tmp_path / "mine.txt").write_text(f"{MIT}\r\n")
    assert read(crate | {"license_file": "mine.txt"}).texts == (MIT,)


def test_a_toolchain_without_the_standard_librarys_licence_is_refused(tmp_path):
    """With what to do."""
    with pytest.raises(ValueError, match=r"install the toolchain with its documentation"):
        standard_library(tmp_path)


@pytest.fixture
def checkout(tmp_path):
    """A copy of what a wheel is built of, with its licences written."""
    if not shutil.which("cargo"):
        not_tested("licences are asked of cargo")
    for name in FILES:
        place = ROOT / name
        if place.is_dir():
            ignored = shutil.ignore_patterns("*.so", "__pycache__", "target")
            shutil.copytree(place, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(place, tmp_path)
    subprocess.run([sys.executable, tmp_path / "rust/licences.py"], check=True)
    return tmp_path


def test_the_wheel_has_them_all(checkout):
    """Every crate that is linked in is in Cargo.lock, and named with a text; maturin takes both files along."""
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        not_tested("no maturin in the environment: `make build` installs it")
    command = [maturin, "pep517", "write-dist-info", "--metadata-directory", checkout / "made"]
    subprocess.run([*command, "--interpreter", sys.executable], cwd=checkout, check=True, capture_output=True)
    [licences] = checkout.glob("made/*.dist-info/licenses")
    of_crates = (licences / "third-party" / CRATES).read_text("utf-8")
    [of_library] = licences.glob("third-party/RUST-STANDARD-LIBRARY*")
    named = {line.partition(":")[0] for line in of_crates.partition("\n=")[0].splitlines()[2:] if line}
    locked = {
        f"{each['name']} {each['version']}" for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    direct = {name.partition(" ")[0] for name in named}
    assert named <= locked
    assert {"libc", "libloading", "pyo3", "rustix", "serde_json"} < direct
    assert not direct & {"proptest", "tempfile", "serde_derive", "devherd"}
    assert "Permission is hereby granted, free of charge" in of_crates
    assert of_library.stat().st_size > 1000
