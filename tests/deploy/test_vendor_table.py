"""deploy/vendors.md: every test it names is there, every import it shows makes a configuration."""

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
TEXT = (ROOT / "deploy" / "vendors.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| |")]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
IMPORTS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("printf")]


@cache
def declared_in(file):
    """Names of the tests in a file, in Python or Rust."""
    text = (ROOT / file).read_text()
    if file.endswith(".rs"):
        return set(re.findall(r"#\[test\]\s+fn (\w+)\(", text))
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_line_of_the_tables_has_a_test_that_exists():
    """A claim counts only with its test."""
    assert len(ROWS) > 100
    shown_by = [re.fullmatch(r" `([\w/]+\.(?:py|rs))::(\w+)` ", row.split("|")[-2]) for row in ROWS]
    missing = [row for row, test in zip(ROWS, shown_by, strict=True) if not test or test[2] not in declared_in(test[1])]
    assert missing == []


def test_every_vendor_has_its_table():
    """Under the title of its row; simulated devices replace no plugin."""
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    *tables, everyone, switching = headings
    assert sorted(tables) == sorted(row.title for row in vendors() if row.name != "simulated")
    assert (everyone, switching) == ("All vendors", "Switching")


@pytest.mark.parametrize("command", IMPORTS)
def test_a_shown_import_works(command):
    """As typed; what it prints is a configuration."""
    typed = command.replace("devherd config import", f"{sys.executable} -m devherd config import")
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    Config.model_validate(yaml.safe_load(done.stdout))
