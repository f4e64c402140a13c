"""`make image`: what it has a builder do, and what it says of what was built."""

import subprocess
import sys
from pathlib import Path

import pytest
from build import LARGEST, Image, commands, report
from oci_archive import Layer

BUILD = Path(__file__).parents[2] / "deploy" / "image" / "build.py"
ARM = Image("example.com/devherd:1", version="1.2.3", revision="abc", epoch=0, platform="linux/arm64")
ARCHIVE = Path("/archives/one.tar")


@pytest.mark.parametrize("builder", ["podman", "buildah"])
def test_podman_and_buildah_build_and_then_write_the_archive(builder):
    """With all times of the image set to one."""
    build, push = commands(builder, ARM, ARCHIVE, ["--pull"])
    assert build[:5] == [builder, "build", "--layers", "--timestamp", "0"]
    assert build[-2:] == ["--pull", "."]
    assert push == [builder, "push", "example.com/devherd:1", "oci-archive:/archives/one.tar:example.com/devherd:1"]


def test_docker_builds_into_the_archive():
    """BuildKit sets the times where it writes."""
    [build] = commands("docker", ARM, ARCHIVE, [])
    assert build[:3] == ["docker", "buildx", "build"]
    assert "type=oci,dest=/archives/one.tar,rewrite-timestamp=true" in build


@pytest.mark.parametrize("builder", ["podman", "buildah", "docker"])
def test_every_builder_is_told_the_same(builder):
    """Version, revision, time and platform."""
    build = commands(builder, ARM, ARCHIVE, [])[0]
    told = {argument for argument, option in zip(build[1:], build, strict=False) if option == "--build-arg"}
    assert told == {"VERSION=1.2.3", "REVISION=abc", "CREATED=1970-01-01T00:00:00+00:00", "SOURCE_DATE_EPOCH=0"}
    assert build[build.index("--platform") + 1] == "linux/arm64"


def test_the_layers_are_listed_with_their_sizes_and_the_sum():
    """As they are pulled."""
    layers = [Layer("sha256:a", 40_000_000, "COPY /"), Layer("sha256:b", 2_500_000, "COPY /opt/devherd")]
    assert report(ARM, layers) == [
        "example.com/devherd:1 for linux/arm64: 42.5 MB to pull",
        "  40.0 MB  sha256:a  COPY /",
        "  2.5 MB  sha256:b  COPY /opt/devherd",
    ]


def test_an_image_that_has_grown_beyond_what_is_promised_is_refused():
    """Its layers are named, to find which."""
    with pytest.raises(ValueError, match=r"80000001 bytes — at most 80000000 are promised — .*sha256:a"):
        report(ARM, [Layer("sha256:a", LARGEST + 1, "COPY /")])


def test_without_a_builder_it_says_which_there_are():
    """And builds nothing."""
    done = subprocess.run(
        [sys.executable, BUILD], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "devherd: no podman, buildah, docker on PATH — it is what builds the image — install "
    )
