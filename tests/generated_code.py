"""Fails when the protobuf modules are not what proto/ makes today, or the sections not what the models do."""

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMITTED = ROOT / "python" / "devherd" / "proto"
FROM_MODELS = ("python/devherd/config/sections.py", "rust/tests/settings/defaults.json")


def generate(target: Path) -> None:
    """Run the Makefile's own recipe with another output directory."""
    recipe = subprocess.run(["make", "--dry-run", "proto"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    commands = [line for line in recipe.splitlines() if "grpc_tools.protoc" in line]
    for command in commands:
        moved = command.replace("_out=quiet:python", f"_out=quiet:{target}").replace("_out=python", f"_out={target}")
        subprocess.run(moved, shell=True, cwd=ROOT, check=True)


def main() -> int:
    """0 when every generated file equals the committed one."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        made = Path(directory) / "devherd" / "proto"
        names = sorted(path.name for path in made.iterdir())
        stale = [name for name in names if not filecmp.cmp(made / name, COMMITTED / name, shallow=False)]
        subprocess.run([sys.executable, ROOT / "python" / "generate.py", directory], check=True)
        of_models = [
            name for name in FROM_MODELS if not filecmp.cmp(Path(directory) / name, ROOT / name, shallow=False)
        ]
    for name in stale:
        print(f"python/devherd/proto/{name} is not what proto/ makes: run `make proto`", file=sys.stderr)
    for name in of_models:
        print(f"{name} is not what the models of the configuration make: run `make models`", file=sys.stderr)
    return bool(stale or of_models) or not names


if __name__ == "__main__":
    sys.exit(main())
