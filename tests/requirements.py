"""Prints what a developer's environment needs, from the one list of dependencies: pyproject.toml.

requirements.py [WORD...]: of the development's own only those whose names begin with one of the words
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

if __name__ == "__main__":
    beginnings = tuple(sys.argv[1:]) or ""
    wanted = [one for one in PROJECT["optional-dependencies"]["dev"] if one.startswith(beginnings)]
    print(*PROJECT["dependencies"], *wanted)
