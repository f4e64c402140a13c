"""Fails when the protobuf modules and types are not what proto/ makes today, or the sections not what the models do."""

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = "python/devherd/proto"
TYPES = "rust/src/spool/messages"
FROM_MODELS = ("python/devherd/config/sections.py", "rust/tests/settings/defaults.json")


def generate(target: Path) -> None:
    """Run the Makefile's own recipe with another output directory."""
    recipe = subprocess.run(["make", "--dry-run", "proto"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for place in (MODULES, TYPES):
        (target / place).mkdir(parents=True)
    for command in recipe.splitlines():
        if "grpc_tools.protoc" in command or TYPES in command:
            moved = command.replace("_out=quiet:python", f"_out=quiet:{target}/python")
            moved = moved.replace("_out=python", f"_out={target}/python").replace(TYPES, f"{target}/{TYPES}")
            subprocess.run(moved, shell=True, cwd=ROOT, check=True)


def stale(made: Path, place: str) -> list[str]:
    """The files that differ from the committed ones."""
    names = sorted(path.name for path in (made / place).iterdir())
    assert names, f"{place}: nothing was generated"
    return [f"{place}/{name}" for name in names if not _is_same(made / place / name, ROOT / place / name)]


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(one, other, shallow=False)


def main() -> int:
    """0 when every generated file equals the committed one."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        generate(made)
        of_proto = [*stale(made, MODULES), *stale(made, TYPES)]
        subprocess.run([sys.executable, ROOT / "python" / "generate.py", directory], check=True)
        of_models = [name for name in FROM_MODELS if not _is_same(made / name, ROOT / name)]
    for name in of_proto:
        print(f"{name} is not what proto/ makes: run `make proto`", file=sys.stderr)
    for name in of_models:
        print(f"{name} is not what the models of the configuration make: run `make models`", file=sys.stderr)
    return bool(of_proto or of_models)


if __name__ == "__main__":
    sys.exit(main())
