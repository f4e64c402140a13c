"""Prints what a developer's environment needs, from the one list of dependencies: pyproject.toml."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

if __name__ == "__main__":
    print(*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])
