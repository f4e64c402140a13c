"""What CONTRIBUTING says of a new vendor and of a new source of health, done and built: these places and no others.

What is built is a wheel, and the tests of one that is compiled are here, too: it takes minutes, and once is enough.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from announcement import announce
from not_tested import not_tested
from wheel import builder_paths, places
from wheel_record import fits

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "target" / "toy"
"""A build cache, as `target` is: only what differs is built again."""

SOURCE = PLACE / "source"
COPIED = ("Cargo.toml", "Cargo.lock", "LICENSE", "pyproject.toml", "rust", "python", "README.md", "deploy", "tests")
ROW = """    toy: ToyOptions => |options, _| options.enabled.then(|| Toy(options.clone())), Row {
        name: toy::VENDOR,
        title: "Toys",
        is_pci: false,
        facts: &["colour"],
        model: &["colour"],
        preferred: Kind::Distributed,
        ..BLANK
    };
"""
SECTION = '''class ToyOptions(VendorOptions):
    """Options of toys."""

    maker: str = "acme"
    """Who has made it."""


'''
ADDITIONS: dict[str, list[tuple[str, str]]] = {
    "rust/src/vendors/mod.rs": [("pub mod table;\n", "pub mod toy;\n")],
    "rust/src/vendors/table.rs": [
        ("use super::Vendor;\n", "use super::toy::{self, Toy, ToyOptions};\n"),
        ("    rdma: RdmaOptions =>", ROW),
    ],
    "rust/src/health/sources/mod.rs": [
        ("#[cfg(test)]\npub(super) mod testing;\n", "mod toy_wear;\n"),
        ("    &scan::Scan,\n", "    &toy_wear::ToyWear,\n"),
    ],
    "python/devherd/config/vendors.py": [
        ("class Vendors(Section):\n", SECTION),
        ("    rdma: RdmaOptions = RdmaOptions()\n", "    toy: ToyOptions = ToyOptions()\n"),
    ],
    "README.md": [("| Generic devices |", "| Toys | `/sys/class/toy` | `acme.example/toy` | none |\n")],
    "tests/claims.md": [("## Generic devices\n", "## Toys\n\n")],
}
"""By file, what goes in front of what is there. Added whole: the vendor, toy/mod.rs, and the source, toy_wear.rs."""

NEW_FILES = {
    "rust/src/vendors/toy/mod.rs": "mod.rs",
    "rust/src/health/sources/toy_wear.rs": "toy_wear.rs",
}

SCRIPT = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
from devherd.config.model import Config
from devherd.config.loader import resolve
from devherd.config.checks import FACTS_OF_VENDOR
from devherd.exporter.device_series import device_families
from devherd.exporter.exposition import Writer
from devherd.instance.read import InstanceState
from devherd.proto import spool_pb2
from devherd.scanner.once import scan_once
report = scan_once(resolve(Config.model_validate(json.loads(sys.argv[1]))))
page = Writer(as_openmetrics=False).page(device_families(InstanceState(report.offers), None)).decode()
gauges = text_string_to_metric_families(page)
models = [sample.labels["model"] for gauge in gauges for sample in gauge.samples if "model" in sample.labels]
print(json.dumps({
    "problems": [problem.error for problem in report.problems],
    "resources": {one.name: [device.id for device in one.devices] for one in report.offers},
    "preferred": {one.name: spool_pb2.Preference.Name(one.preferred) for one in report.offers},
    "models": models,
    "facts": FACTS_OF_VENDOR["toy"],
}))
"""


def install(file: Path, content: bytes) -> None:
    """Write what differs: for cargo, a file that was written has changed."""
    if not file.exists() or file.read_bytes() != content:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def with_additions(name: str, content: bytes) -> bytes:
    """A file with the lines that the new vendor adds to it."""
    text = content.decode()
    for before, added in ADDITIONS[name]:
        assert text.count(before) == 1, f"{name} has changed: where is `{before.strip()}`?"
        text = text.replace(before, added + before)
    return text.encode()


pytestmark = pytest.mark.timeout(1200)
"""The first build takes a minute or two."""


def build(wanted: Mapping[str, bytes], wheel: Path, target: str) -> None:
    """The wheel of the tree with these files, and its module in the tree.

    Without optimisation and with all its debugging information, where each source would be named.
    """
    for earlier in PLACE.glob("wheel-*"):
        shutil.rmtree(earlier)
    for name, content in wanted.items():
        install(SOURCE / name, content)
    for file in [*SOURCE.rglob("*.rs"), *SOURCE.rglob("*.py")]:
        name = file.relative_to(SOURCE)
        if name.parts[0] != "target" and str(name) not in wanted:
            file.unlink()
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": beside, "PYTHONPATH": "", "CARGO_PROFILE_DEV_DEBUG": "full"}
    made = PLACE / "unfinished"
    shutil.rmtree(made, ignore_errors=True)
    command = [sys.executable, SOURCE / "rust/wheel.py", "--target", target, "--out", made, "--locked"]
    done = subprocess.run(
        [*command, "--profile", "dev", "--auditwheel", "skip"],
        env=environment, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = made.iterdir()
    with zipfile.ZipFile(built) as archive:
        [module] = [name for name in archive.namelist() if name.endswith(".so")]
        install(SOURCE / "python" / module, archive.read(module))
    made.rename(wheel)


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Of this source tree with one vendor more, which has its module, too: compiled here, once for all workers."""
    if shutil.which("cargo") is None:
        not_tested("cargo is missing")
    if not Path(sys.executable).with_name("maturin").exists():
        not_tested("no maturin in the environment: `make build` installs it")
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = subprocess.run(
            ["git", "ls-files", *COPIED], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        wanted = {
            name: with_additions(name, content) if name in ADDITIONS else content
            for name in listed.splitlines()
            if (file := ROOT / name).exists() and (content := file.read_bytes()) is not None
        }
        for name, file in NEW_FILES.items():
            wanted[name] = Path(__file__).with_name(file).read_bytes()
        said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
        [target] = [line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: ")]
        digest = hashlib.sha256(said.encode())
        for name, content in wanted.items():
            digest.update(f"{name} {len(content)}\n".encode() + content)
        made = PLACE / f"wheel-{digest.hexdigest()[:12]}"
        if not made.exists():
            announce(request.config, "a wheel with one vendor more: compiling, minutes the first time")
            build(wanted, made, target)
        fcntl.flock(lock, fcntl.LOCK_SH)  # many may read it, nobody write it
        [found] = made.iterdir()
        yield found


@pytest.fixture
def toy(wheel: Path) -> Path:
    """This source tree with one vendor more, built."""
    return SOURCE


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with two toys."""
    (tmp_path / "dev").mkdir()
    for name, colour in (("toy2", "red"), ("toy10", "blue")):
        (tmp_path / "sys/class/toy" / name).mkdir(parents=True)
        (tmp_path / "sys/class/toy" / name / "colour").write_text(f"{colour}\n")
    return tmp_path


def run(toy: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """With the tree that knows the new vendor."""
    environment = os.environ | {"PYTHONPATH": str(toy / "python")}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=toy, capture_output=True, text=True, check=False
    )


def made(toy: Path, host: Path, **config: object) -> dict[str, Any]:
    """What a scan makes of the host."""
    done = run(toy, "-c", SCRIPT, json.dumps({"host_root": str(host), **config}))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_vendor_that_is_added_in_five_places_is_scanned_configured_matched_and_offered(toy: Path, host: Path) -> None:
    """Under its own name and by its own preference; by its options; by rules over its facts; not at all."""
    assert made(toy, host) == {
        "problems": [],
        "resources": {"acme.example/toy": ["toy2", "toy10"]},
        "preferred": {"acme.example/toy": "DISTRIBUTED"},
        "models": ["red", "blue"],
        "facts": ["colour"],
    }
    options = {"toy": {"maker": "other"}}
    assert made(toy, host, vendors=options)["resources"] == {"other.example/toy": ["toy2", "toy10"]}
    rule = {"match": {"vendor": "toy", "colour": "r*"}, "name": "a.example/red", "preferred": "packed"}
    matched = made(toy, host, resources=[rule])
    assert matched["resources"] == {"a.example/red": ["toy2"], "acme.example/toy": ["toy10"]}
    assert matched["preferred"] == {"a.example/red": "PACKED", "acme.example/toy": "DISTRIBUTED"}
    assert made(toy, host, vendors={"toy": {"enabled": False}})["resources"] == {}


def test_the_commands_know_the_new_vendor(toy: Path, host: Path, tmp_path: Path) -> None:
    """Its keys and facts in `config check`, its devices in scan."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"vendors": {"toy": {"makr": "x"}}}))
    refused = run(toy, "-m", "devherd", "config", "check", config)
    assert "vendors.toy.makr: unknown key — did you mean `maker`?" in refused.stderr
    config.write_text(yaml.safe_dump({"resources": [{"match": {"vendor": "toy", "color": "red"}}]}))
    warned = run(toy, "-m", "devherd", "config", "check", config, "--host-root", host)
    assert "match.color: devices of toy do not have this fact — did you mean `colour`?" in warned.stderr
    scanned = run(toy, "-m", "devherd", "scan", "--host-root", host, "--output", "json")
    [resource] = json.loads(scanned.stdout)["resources"]
    assert (resource["vendor"], [device["attributes"] for device in resource["devices"]]) == (
        "toy",
        [{"colour": "red"}, {"colour": "blue"}],
    )


def test_a_source_of_health_that_is_one_file_and_one_line_is_registered_looked_at_and_explained(
    toy: Path, host: Path
) -> None:
    """With its own word, action, file and value; nobody else names it."""
    (host / "sys/class/toy/toy2/wear").write_text("axle\n")
    (host / "sys/class/toy/toy10/wear").write_text("none\n")
    scanned = run(toy, "-m", "devherd", "scan", "--host-root", host, "--output", "json", "--explain")
    [resource] = json.loads(scanned.stdout)["resources"]
    found = {device["id"]: device for device in resource["devices"]}
    assert (found["toy2"]["warnings"], found["toy10"]["warnings"]) == (["worn"], [])
    assert [finding for finding in found["toy2"]["findings"] if finding["source"] == "toy-wear"] == [
        {
            "reason": "worn",
            "action": "warn",
            "source": "toy-wear",
            "detail": "the toy is worn",
            "file": "/sys/class/toy/toy2/wear",
            "value": "axle",
        }
    ]


def test_the_checks_of_what_is_written_by_hand_are_content_with_the_five_places(toy: Path) -> None:
    """Those of the table, the README and tests/claims.md."""
    tests = (
        "tests/vendors/test_vendor_rows.py::test_every_row_has_its_section_in_the_configuration",
        "tests/vendors/test_vendor_rows.py::test_the_scan_core_takes_every_option_that_the_models_give_and_no_other",
        "tests/docs/test_readme_table.py::test_every_vendor_is_listed",
        "tests/deploy/test_vendor_table.py::test_every_vendor_has_its_claims",
    )
    done = run(toy, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_built_wheel_has_no_path_of_its_builder(wheel: Path) -> None:
    """Nor of the sources that are compiled, which its module names; and it is a wheel nevertheless."""
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
    assert "devherd/classes/intel-npu.toml" in names
