"""Writes the licences of what is linked into the native module, for the wheel: binaries are given on with their texts.

    licences.py [TARGET]

They go into `third-party`, from where `license-files` of pyproject.toml takes them into the wheel's `.dist-info`. The
texts are those of the crates' own sources and of the Rust toolchain; TARGET is as in `x86_64-unknown-linux-gnu`, by
default this machine's.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DESTINATION = Path("third-party")
CRATES = "RUST-CRATES.txt"
_BEGINNINGS = ("LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
_LINE = "=" * 100

# Where a toolchain has that of the standard library: rustup's, an older one of rustup's, Debian's.
_STANDARD_LIBRARY = (
    "share/doc/rust/COPYRIGHT-library.html",
    "share/doc/rust/COPYRIGHT",
    "share/doc/libstd-rust-dev/copyright",
)


@dataclass(frozen=True)
class Crate:
    """`licence` is an SPDX expression, or empty; `texts` are those of its licences and notices."""

    name: str
    version: str
    licence: str
    address: str
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def linked(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """The packages of `cargo metadata` that end in the module, by name; not what builds or tests it, nor macros."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found: set[str] = set()
    waiting = [root]
    while waiting:
        package = waiting.pop()
        if package not in found and not _is_macro(packages[package]):
            found.add(package)
            waiting += [
                each["pkg"] for each in nodes[package] if any(kind["kind"] is None for kind in each["dep_kinds"])
            ]
    return sorted(
        (packages[each] for each in found - {root}), key=lambda package: (package["name"], package["version"])
    )


def _is_macro(package: dict[str, Any]) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def read(package: dict[str, Any]) -> Crate:
    """The crate with the texts of its directory. Raises ValueError where it has none."""
    directory = Path(package["manifest_path"]).parent
    files = [each for each in directory.iterdir() if each.is_file() and each.name.upper().startswith(_BEGINNINGS)]
    if named := package.get("license_file"):
        files.append(directory / named)
    texts = dict.fromkeys(_normal(file.read_text("utf-8")) for file in sorted(files))
    if not texts:
        raise ValueError(
            f"no licence text in {directory} — {package['name']} is linked into the wheel, which is given on with it"
            f" — take a version of the crate that has one, or none of it"
        )
    return Crate(
        package["name"], package["version"], package["license"] or "", package["repository"] or "", tuple(texts)
    )


def _normal(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def document(crates: Iterable[Crate]) -> str:
    """All crates, then each text once, under the crates that it is of."""
    of_text: dict[str, list[Crate]] = {}
    for crate in (crates := list(crates)):
        for text in crate.texts:
            of_text.setdefault(text, []).append(crate)
    return "\n".join(_lines(crates, of_text)) + "\n"


def _lines(crates: list[Crate], of_text: dict[str, list[Crate]]) -> Iterator[str]:
    yield "Rust crates that are linked into devherd's native module, and the texts of their licences.\n"
    for crate in crates:
        yield f"{crate}: {crate.licence or 'see its text'}{f' ({crate.address})' if crate.address else ''}"
    for text, owners in of_text.items():
        yield f"\n{_LINE}\n{', '.join(map(str, owners))}\n{_LINE}\n\n{text}"


def standard_library(sysroot: Path) -> Path:
    """The file of the toolchain that has its licences. Raises ValueError where there is none."""
    for name in _STANDARD_LIBRARY:
        if (sysroot / name).exists():
            return sysroot / name
    raise ValueError(
        f"no licence of Rust's standard library in {sysroot} — it is linked into the wheel, which is given on with it"
        " — install the toolchain with its documentation: rustup has it"
    )


def _host() -> str:
    """The first line that says `host: ` (`--print host-tuple` is newer than the oldest Rust that compiles devherd)."""
    [host] = [line for line in _said("rustc", "-vV").splitlines() if line.startswith("host: ")]
    return host.removeprefix("host: ")


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(words: list[str]) -> int:
    """Write the files anew."""
    try:
        platform = words[0] if words else _host()
        command = ("cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={platform}")
        crates = [read(package) for package in linked(json.loads(_said(*command)))]
        of_library = standard_library(Path(_said("rustc", "--print", "sysroot").strip()))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"devherd: {error}", file=sys.stderr)
        return 1
    place = ROOT / DESTINATION
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / CRATES).write_text(document(crates), "utf-8")
    shutil.copyfile(of_library, place / f"RUST-STANDARD-LIBRARY{of_library.suffix or '.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
