"""`make release`: every part is there with its sum and its bill of materials, or it is named."""

import io
import subprocess
import zipfile
from pathlib import Path

import pytest
from release import SUMS, build, main, parts, write_sums

WHEELS = {f"devherd-1-cp311-abi3-manylinux_2_17_{each}.whl" for each in ("x86_64", "aarch64")}


def wheel():
    """The content of one with a bill of materials."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("devherd-1.dist-info/sboms/devherd.cyclonedx.json", '{"bomFormat": "CycloneDX"}')
    return content.getvalue()


def builds(target):
    """In the place of make: each part as it is called, without a compiler."""
    options = dict(word.split("=", 1) for word in target[1:])
    place = Path(options["DIST"])
    if target[0] == "wheel":
        (place / f"devherd-1-cp311-abi3-manylinux_2_17_{options['ARCHITECTURE']}.whl").write_bytes(wheel())
    elif target[0] == "image":
        processor = options["IMAGE_OPTIONS"].rpartition("/")[2]
        (place / f"devherd-1-{processor}.oci.tar").write_text(f"image for {processor}")
        (place / f"devherd-1-{processor}.cdx.json").write_text("{}")
    else:
        (place / "devherd-1.tgz").write_text("chart")
    return 0


def test_a_release_has_both_processors_a_chart_and_a_bill_for_each_program(tmp_path):
    """Nothing of an older one is left, and nothing else is touched."""
    for name in ("devherd-0-cp311-abi3-manylinux_2_17_x86_64.whl", "mine.txt"):
        (tmp_path / name).touch()
    assert build(tmp_path, builds) == []
    assert {each.name for each in tmp_path.iterdir()} == {
        "mine.txt",
        "devherd-1.tgz",
        *(f"devherd-1-{each}.{kind}" for each in ("amd64", "arm64") for kind in ("oci.tar", "cdx.json")),
        *WHEELS,
        *(f"{each}.cdx.json" for each in WHEELS),
    }


def test_the_sums_are_those_that_sha256sum_checks(tmp_path):
    """Of every file; one that has changed is found."""
    build(tmp_path, builds)
    assert len(write_sums(tmp_path)) == 9
    check = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "devherd-1.tgz").write_text("another")
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "devherd-1.tgz: FAILED" in done.stdout


@pytest.mark.parametrize("code", [0, 2])
def test_a_part_that_cannot_be_built_is_named_and_costs_no_other(tmp_path, code):
    """Also one whose builder ends well and leaves nothing."""

    def without_arm_image(target):
        return code if "IMAGE_OPTIONS=--platform linux/arm64" in target else builds(target)

    [missing] = build(tmp_path, without_arm_image)
    assert missing == f"image for arm64: `make image` ended with {code}, its own words are above"
    assert len(list(tmp_path.glob("devherd-*"))) == 7


def test_a_release_that_is_not_whole_ends_with_one_and_says_so(tmp_path, monkeypatch, capfd):
    """With the real chart, which needs no toolchain, and none for the rest."""
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\ntest "$1" = chart || exit 3\nexec make "$@"\n')
    make.chmod(0o755)
    monkeypatch.setenv("MAKE", str(make))
    assert main(["--out", str(tmp_path / "out")]) == 1
    said = capfd.readouterr()
    assert said.err.count("NOT BUILT HERE: ") == len(parts(tmp_path)) - 1 == 4
    assert "devherd: the release is not whole — 4 of its parts are missing — " in said.err
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [SUMS, "devherd-0.1.0.tgz"]
