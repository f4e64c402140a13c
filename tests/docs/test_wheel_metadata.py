"""What an index and `pip show` say of the wheel: written by the tool that builds it, without compiling anything."""

import re
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path

import pytest
from not_tested import not_tested

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """The METADATA of a wheel of this checkout."""
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        not_tested("no maturin in the environment: `make build` installs it")
    directory = tmp_path_factory.mktemp("metadata")
    command = [maturin, "pep517", "write-dist-info", "--metadata-directory", directory, "--interpreter", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "cargo" in done.stderr and done.returncode:
        not_tested(f"maturin needs cargo: {done.stderr}")
    assert done.returncode == 0, done.stderr
    [file] = directory.glob("*/METADATA")
    return message_from_string(file.read_text("utf-8"))


def test_it_says_what_it_is_for_whom_and_where_more_is(metadata):
    """As indexes list and search it."""
    assert metadata["Version"] == tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    assert metadata["Author"] == "The devherd authors"
    assert "kubernetes" in metadata["Keywords"].split(",")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier")
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL")} == {"Changelog", "Documentation"}


def test_every_python_that_it_names_is_one_that_it_takes(metadata):
    """From the oldest on."""
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(metadata.get_all("Classifier")))
    oldest = int(metadata["Requires-Python"].removeprefix(">=3."))
    assert [int(minor) for minor in named] == list(range(oldest, oldest + len(named)))


def test_its_description_has_no_link_that_leads_nowhere(metadata):
    """A link within the checkout does, in an index. The one of the README is for the checkout."""
    links = re.findall(r"\]\(([^)]*)\)", metadata.get_payload())
    assert [link for link in links if not link.startswith("https://")] == []


def test_its_addresses_are_those_of_the_site_that_alerts_name(metadata):
    """One base, until there is a public one: then all are moved together."""
    base = {re.match(r"https://[^/]+/", url.partition(", ")[2])[0] for url in metadata.get_all("Project-URL")}
    rules = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text("utf-8")
    assert {re.match(r"https://[^/]+/", url)[0] for url in re.findall(r"runbook_url: (\S+)", rules)} == base
