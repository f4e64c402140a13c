"""Prints what a developer's environment needs besides the wheel itself, from pyproject.toml: its one list of dependencies."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

if __name__ == "__main__":
    print(*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])
