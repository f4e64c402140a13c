"""Everything that a release has, in one directory: wheels, image archives, chart, bills of materials, SHA256SUMS.

    release.py [--out DIRECTORY]

Each part is what `make wheel`, `make image` and `make chart` build. A part that cannot be built on this machine costs
no other: it is named at the end, and the exit code is then 1.
"""

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Rust names them, and as images do."""


@dataclass(frozen=True)
class Part:
    """One file of a release: its name for people, the target of make, the file as a glob."""

    title: str
    target: tuple[str, ...]
    file: str


def parts(directory: Path) -> list[Part]:
    """All parts of a release; what this machine can build without another's toolchain first."""
    processors = sorted(_PROCESSORS, key=lambda each: each != platform.machine())
    wheels = [
        Part(f"wheel for {each}", ("wheel", f"ARCHITECTURE={each}", f"DIST={directory}"), f"devherd-*_{each}.whl")
        for each in processors
    ]
    images = [
        Part(
            f"image for {_PROCESSORS[each]}",
            ("image", f"IMAGE_OPTIONS=--platform linux/{_PROCESSORS[each]}", f"DIST={directory}"),
            f"devherd-*-{_PROCESSORS[each]}.oci.tar",
        )
        for each in processors
    ]
    return [Part("chart", ("chart", f"DIST={directory}"), "devherd-*.tgz"), *wheels, *images]


def build(directory: Path, make: Callable[[Sequence[str]], int]) -> list[str]:
    """Build each part, and name those that are missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in (*directory.glob("devherd-*"), directory / SUMS):
        old.unlink(missing_ok=True)
    missing = []
    for part in parts(directory):
        print(f"== {part.title} ==", flush=True)
        code = make(part.target)
        if code or not list(directory.glob(part.file)):
            missing.append(f"{part.title}: `make {part.target[0]}` ended with {code}, its own words are above")
    for wheel in directory.glob("*.whl"):
        write_bill(wheel)
    return missing


def write_bill(wheel: Path) -> None:
    """The bill of materials that a wheel has, beside it."""
    with zipfile.ZipFile(wheel) as archive:
        [bill] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        wheel.with_suffix(".whl.cdx.json").write_bytes(archive.read(bill))


def write_sums(directory: Path) -> list[Path]:
    """SHA256SUMS, as `sha256sum --check` reads it, of every file of the release; these files."""
    files = sorted(directory.glob("devherd-*"))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (directory / SUMS).write_text("".join(lines), "utf-8")
    return files


def main(words: Sequence[str]) -> int:
    """Build, sum, say what there is and what there is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    directory = parser.parse_args(words).out.absolute()
    missing = build(directory, _make)
    files = write_sums(directory)
    print(
        f"== {directory} ==", *(f"{file.stat().st_size / 1e6:8.2f} MB  {file.name}" for file in files), SUMS, sep="\n"
    )
    for each in missing:
        print(f"NOT BUILT HERE: {each}", file=sys.stderr)
    if missing:
        cure = "build them where their toolchain is, and run it again there"
        print(f"devherd: the release is not whole — {len(missing)} of its parts are missing — {cure}", file=sys.stderr)
    return 1 if missing else 0


def _make(target: Sequence[str]) -> int:
    return subprocess.run([os.environ.get("MAKE", "make"), *target], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
