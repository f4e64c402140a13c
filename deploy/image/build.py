"""Builds the image by deploy/Containerfile, writes it and its bill of materials into dist/, and prints its layers.

    build.py [--builder podman|buildah|docker] [--platform linux/arm64] [--name NAME] [--out DIRECTORY] [OPTION...]

What it does not know goes on to the builder, such as --build-arg PYTHON_IMAGE=docker.io/library/python@sha256:... . Two
builds of one commit on the same base images have the same layers: all times in them are that of the commit, or
SOURCE_DATE_EPOCH.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from oci_archive import Layer, OciArchive

ROOT = Path(__file__).parents[2]
BUILDERS = ("podman", "buildah", "docker")
LARGEST = 80_000_000
"""Bytes of all layers, compressed."""

MATERIALS = "usr/share/devherd/materials/devherd.cdx.json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """What is built: `epoch` is the time of everything in it, in seconds, `platform` as in `linux/arm64`."""

    name: str
    version: str
    revision: str
    epoch: int
    platform: str

    @property
    def file_name(self) -> str:
        """What its files are called, but for their endings."""
        return f"devherd-{self.version}-{self.platform.rpartition('/')[2]}"

    @property
    def arguments(self) -> list[str]:
        """What every builder is told."""
        build = {
            "VERSION": self.version,
            "REVISION": self.revision,
            "CREATED": datetime.fromtimestamp(self.epoch, UTC).isoformat(),
            "SOURCE_DATE_EPOCH": str(self.epoch),
        }
        told = [word for name, value in build.items() for word in ("--build-arg", f"{name}={value}")]
        return ["--file", "deploy/Containerfile", "--platform", self.platform, "--tag", self.name, *told]


def commands(builder: str, image: Image, archive: Path, options: Sequence[str]) -> list[list[str]]:
    """The commands of a builder that leave the image in the archive."""
    if builder == "docker":
        output = f"type=oci,dest={archive},rewrite-timestamp=true"
        # No attestations: they are a second image in the archive.
        return [
            ["docker", "buildx", "build", *image.arguments, "--provenance=false", "--output", output, *options, "."]
        ]
    build = [builder, "build", "--layers", "--timestamp", str(image.epoch), *image.arguments, *options, "."]
    return [build, [builder, "push", image.name, f"oci-archive:{archive}:{image.name}"]]


def of_checkout(name: str | None, platform_name: str | None) -> Image:
    """The image of this checkout; without git its revision is `unknown` and its time now."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["package"]["version"]
    machine = platform.machine()
    return Image(
        name=name or f"localhost/devherd:{version}",
        version=version,
        revision=_git("describe", "--always", "--dirty", "--abbrev=40", "--match=") or "unknown",
        epoch=int(
            os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or datetime.now(UTC).timestamp()
        ),
        platform=platform_name or f"linux/{_ARCHITECTURES.get(machine, machine)}",
    )


def main(words: Sequence[str]) -> int:
    """Build, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builder", choices=BUILDERS, help="default: the first of these that is on PATH")
    parser.add_argument("--platform", help="linux/amd64 or linux/arm64; default: this machine's")
    parser.add_argument("--name", help="default: localhost/devherd:VERSION")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    known, options = parser.parse_known_args(words)
    builder = known.builder or next(filter(shutil.which, BUILDERS), None)
    if builder is None or shutil.which(builder) is None:
        wanted = builder or ", ".join(BUILDERS)
        return _say(f"no {wanted} on PATH — it is what builds the image — install podman, buildah or docker's buildx")
    image = of_checkout(known.name, known.platform)
    archive = known.out.absolute() / f"{image.file_name}.oci.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    for command in commands(builder, image, archive, options):
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return _say(
                f"`{' '.join(command[:3])} …` ended with {code} — its own words are above — see CONTRIBUTING.md"
            )
    built = OciArchive(archive)
    bill = archive.with_name(f"{image.file_name}.cdx.json")
    bill.write_bytes(built.file(MATERIALS))
    try:
        lines = report(image, built.layers())
    except ValueError as error:
        return _say(str(error))
    print(*lines, f"in {archive}, what it is made of in {bill}", sep="\n")
    return 0


def report(image: Image, layers: Sequence[Layer]) -> list[str]:
    """The image's size as it is pulled, and that of each layer. Raises ValueError where it is larger than promised."""
    size = sum(layer.size for layer in layers)
    if size > LARGEST:
        raise ValueError(
            f"{image.name} has {size} bytes — at most {LARGEST} are promised — see which layer has grown: {layers}"
        )
    return [
        f"{image.name} for {image.platform}: {_megabytes(size)} to pull",
        *(f"  {_megabytes(layer.size)}  {layer.digest}  {layer.made_by}" for layer in layers),
    ]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _say(text: str) -> int:
    print(f"devherd: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
