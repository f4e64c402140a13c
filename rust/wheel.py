"""Builds a wheel with the licences of what is linked in, and with no path of the machine that builds it.

    wheel.py --target TARGET --out DIRECTORY [OPTION of `maturin build`...]

Rust writes the places of sources into panics, maturin that of the checkout into the bill of materials: rustc's
`--remap-path-prefix` gives the first names of their own, the second is rewritten with its line in RECORD. A wheel that
has such a path nevertheless is refused.
"""

import argparse
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import licences

ROOT = Path(__file__).parents[1]
_BETWEEN = "\x1f"
"""Between two flags of CARGO_ENCODED_RUSTFLAGS, where a path may have spaces."""


def places(environment: Mapping[str, str]) -> dict[str, str]:
    """Directories of this machine that hold sources or what is made of them, with the name that each gets.

    Of two that a path begins with the later one counts, as with rustc.
    """
    target = json.loads(_output("cargo", "metadata", "--format-version=1", "--no-deps"))["target_directory"]
    sysroot = _output("rustc", "--print", "sysroot").strip()
    [commit] = [line.split()[1] for line in _output("rustc", "-vV").splitlines() if line.startswith("commit-hash: ")]
    return {
        environment.get("CARGO_HOME") or str(Path.home() / ".cargo"): "/cargo",
        sysroot: "/rust",
        f"{sysroot}/lib/rustlib/src/rust": f"/rustc/{commit}",
        target: "/target",
        str(ROOT): "/devherd",
    }


def flags(named: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """CARGO_ENCODED_RUSTFLAGS: those of the environment, then a new name for each place."""
    encoded = environment.get("CARGO_ENCODED_RUSTFLAGS", "")
    own = encoded.split(_BETWEEN) if encoded else environment.get("RUSTFLAGS", "").split()
    return _BETWEEN.join([*own, *(f"--remap-path-prefix={place}={name}" for place, name in named.items())])


def without_checkout(value: Any) -> Any:
    """A bill of materials of maturin's whose references to the checkout are package URLs."""
    if isinstance(value, dict):
        return {key: without_checkout(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_checkout(each) for each in value]
    if isinstance(value, str) and value.startswith("path+file://"):
        # `path+file:///checkout#devherd@0.1.0`, or `…/devherd#0.1.0` in a directory of that name (cargo's package ids).
        place, _, package = value.removeprefix("path+file://").partition("#")
        return f"pkg:cargo/{package if '@' in package else f'{Path(place).name}@{package}'}"
    return value


def rewrite(wheel: Path) -> None:
    """The wheel with its bills of materials as above and a RECORD that fits."""
    changed: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as old, tempfile.NamedTemporaryFile(dir=wheel.parent, delete=False) as beside:
        for name in old.namelist():
            if ".dist-info/sboms/" in name and name.endswith(".json"):
                changed[name] = json.dumps(without_checkout(json.loads(old.read(name))), indent=1).encode()
        [record] = [name for name in old.namelist() if name.endswith(".dist-info/RECORD")]
        lines = old.read(record).decode().splitlines()
        changed[record] = "".join(f"{_recorded(line, changed)}\n" for line in lines).encode()
        with zipfile.ZipFile(beside, "w") as new:
            for entry in old.infolist():
                new.writestr(entry, changed.get(entry.filename, old.read(entry)))
    shutil.copymode(wheel, beside.name)
    Path(beside.name).replace(wheel)


def _recorded(line: str, changed: Mapping[str, bytes]) -> str:
    """A line of RECORD: name, hash and size, of what has changed the new ones."""
    name = line.partition(",")[0]
    if name not in changed:
        return line
    digest = base64.urlsafe_b64encode(hashlib.sha256(changed[name]).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(changed[name])}"


def builder_paths(wheel: Path, named: Iterable[str]) -> list[str]:
    """`file: path` for each place of the builder that a file of the wheel has, and for references to files."""
    wanted = [*(f"{place.rstrip('/')}/" for place in named), "file:///"]
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}
    return [
        f"{name}: {each}"
        for name, content in contents.items()
        if name.endswith(".so") or ".dist-info/sboms/" in name
        for each in wanted
        if each.encode() in content
    ]


def build(target: str, options: list[str], destination: Path) -> Path:
    """The wheel in its destination. Raises ValueError where it has a path of this machine."""
    named = places(os.environ)
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where maturin is
    environment = {**os.environ, "PATH": beside, "CARGO_ENCODED_RUSTFLAGS": flags(named, os.environ)}
    with tempfile.TemporaryDirectory() as made:
        command = ["maturin", "build", *options, "--target", target, "--out", made]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        [wheel] = Path(made).glob("*.whl")
        rewrite(wheel)
        if found := builder_paths(wheel, named):
            raise ValueError(
                f"{wheel.name} has paths of this machine: {', '.join(found)} — they mean nothing elsewhere and show"
                " who built it — give their beginning a name in `places` of rust/wheel.py"
            )
        destination.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, destination))


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(words: list[str]) -> int:
    """Write the licences, build, say where the wheel is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="as in x86_64-unknown-linux-gnu")
    parser.add_argument("--out", required=True, type=Path)
    known, options = parser.parse_known_args(words)
    if code := licences.main([known.target]):
        return code
    try:
        built = build(known.target, options, known.out)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"devherd: {error}", file=sys.stderr)
        return 1
    print(f"the wheel is {built}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
