"""tests/claims.md has a test for each claim, and docs/switch.md for each vendor imports that make a configuration."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from devherd._native import vendors
from devherd.config.model import Config

ROOT = Path(__file__).parents[2]
CLAIMS = (ROOT / "tests" / "claims.md").read_text()
SWITCH = ROOT / "docs" / "switch.md"
ROWS = [line for line in CLAIMS.splitlines() if line.startswith("| ") and not line.startswith("| |")]


def imports():
    """The imports of the page that need no cluster."""
    blocks = re.findall(r"^```sh\n(.*?)^```", SWITCH.read_text(), re.MULTILINE | re.DOTALL) if SWITCH.exists() else []
    return [line for block in blocks for line in block.splitlines() if line.startswith("printf")]


@cache
def declared_in(file):
    """Names of the tests in a file, in Python or Rust."""
    text = (ROOT / file).read_text()
    if file.endswith(".rs"):
        return set(re.findall(r"#\[test\]\s+fn (\w+)\(", text))
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_claim_has_a_test_that_exists():
    """A claim counts only with its test."""
    assert len(ROWS) > 100
    shown_by = [re.fullmatch(r" `([\w/]+\.(?:py|rs))::(\w+)` ", row.split("|")[-2]) for row in ROWS]
    missing = [row for row, test in zip(ROWS, shown_by, strict=True) if not test or test[2] not in declared_in(test[1])]
    assert missing == []


def test_every_vendor_has_its_claims():
    """Under the title of its row; simulated devices replace no plugin."""
    *tables, everyone = re.findall(r"^## (.+)$", CLAIMS, re.MULTILINE)
    assert sorted(tables) == sorted(row.title for row in vendors() if row.name != "simulated")
    assert everyone == "All vendors"


def test_every_vendor_that_has_claims_has_its_part_of_the_page_on_switching():
    """What stays the same, what differs, how to switch."""
    titles = re.findall(r"^## (.+)$", CLAIMS, re.MULTILINE)[:-1]
    assert set(titles) - set(re.findall(r"^## (.+)$", SWITCH.read_text(), re.MULTILINE)) == set()


@pytest.mark.parametrize("command", imports())
def test_a_shown_import_works(command):
    """As typed; what it prints is a configuration."""
    typed = command.replace("devherd config import", f"{sys.executable} -m devherd config import")
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    Config.model_validate(yaml.safe_load(done.stdout))
