"""What the README shows works when it is typed."""

import re
from pathlib import Path

import pytest
import yaml
from command_line import devherd

from devherd._native import vendors
from devherd.config import Config
from devherd.config.warnings import warnings_of

README = (Path(__file__).parents[2] / "README.md").read_text()
SHOWN = "".join(re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
COMMANDS = sorted(set(re.findall(r"^devherd ((?:sim )?[a-z-]+)", SHOWN, re.MULTILINE)))


def test_the_configuration_is_good_and_nothing_in_it_is_without_effect():
    """Each of its rules can match something."""
    [shown] = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert list(warnings_of(Config.model_validate(yaml.safe_load(shown)))) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_shown_command_exists(command):
    """With help of its own."""
    outcome = devherd(*command.split(), "--help")
    assert (outcome.code, outcome.stderr) == (0, "")


def test_every_vendor_is_listed():
    """Under the title of its row in the vendor table, and nothing else is."""
    table = README.partition("## What it serves")[2].partition("## Install")[0]
    _heading, *listed = re.findall(r"^\| ([^|,]+?)(?:,[^|]*)? \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(row.title for row in vendors())
