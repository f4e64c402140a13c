"""`make docs` builds the site without a warning, and notices what it has to notice."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from not_tested import not_tested

ROOT = Path(__file__).parents[2]
FIRST = "# First\n\n```{toctree}\nother\n```\n\n"


@pytest.fixture
def build(tmp_path):
    """`build(source)` builds a site from a directory as `make docs` does; its complaints."""
    if importlib.util.find_spec("sphinx") is None:
        not_tested("no sphinx in the environment: `make build` installs it")

    def run(source):
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs"]
        done = subprocess.run(
            [*command, "-d", tmp_path / "read", source, tmp_path / "site"], capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == (done.stderr == ""), done.stderr
        return done.stderr

    return run


@pytest.fixture
def pages(tmp_path):
    """A checkout of two pages; `pages(text)` adds the text to the first."""

    def write(text):
        docs = tmp_path / "checkout" / "docs"
        docs.mkdir(parents=True)
        (docs / "index.md").write_text(FIRST + text)
        (docs / "other.md").write_text("# Other\n\n## Its part\n")
        (docs / "file.yaml").write_text("{}\n")
        return docs.parent

    return write


def test_the_site_is_built_without_a_warning(build, tmp_path):
    """Every page of the checkout is in it, its address leads to the first page, and alerts to what to do."""
    assert build(ROOT) == ""
    assert 'href="docs/index.html"' in (tmp_path / "site" / "index.html").read_text()
    for page in ("docs/index", "docs/health", "README", "docs/switch", "tests/claims"):
        assert (tmp_path / "site" / f"{page}.html").is_file()
    on_call = (tmp_path / "site" / "docs" / "on-call.html").read_text()
    urls = re.findall(r"runbook_url: \S+/docs/on-call\.html#(\S+)", (ROOT / "deploy/prometheus/rules.yaml").read_text())
    assert urls
    assert [anchor for anchor in urls if f'id="{anchor}"' not in on_call] == []


def test_links_out_of_the_site_are_listed_and_not_fetched(build, pages, tmp_path):
    """An address that nobody has is no warning."""
    assert build(pages("[away](https://nobody.invalid/x)\n")) == ""
    assert (tmp_path / "site" / "external-links.txt").read_text() == "https://nobody.invalid/x  docs/index\n"


@pytest.mark.parametrize("link", ["other.md", "other.md#its-part", "#first", "file.yaml"])
def test_a_link_to_what_is_there_is_good(build, pages, link):
    """Pages, their parts and files."""
    assert build(pages(f"[there]({link})\n")) == ""


@pytest.mark.parametrize("link", ["another.md", "other.md#no-part", "#no-part", "no-file.yaml"])
def test_a_link_to_what_is_not_there_fails_the_build(build, pages, link):
    """Pages, their parts and files."""
    assert "xref_missing" in build(pages(f"[nowhere]({link})\n"))


def test_every_page_that_code_messages_and_manifests_name_is_there():
    """Defect: a page was renamed, and a message went on sending its readers to the old one."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = {
        (name, page)
        for name in files.split("\0")
        if name.startswith(("python/", "rust/", "deploy/", "proto/", "tests/", "benches/", "docs/generate/"))
        and name != "tests/docs/test_site.py"
        and (ROOT / name).is_file()
        for page in re.findall(rb"(?<![\w./-])(?:docs|deploy)/[a-z-]+\.md\b", (ROOT / name).read_bytes())
    }
    assert named
    assert sorted((name, page.decode()) for name, page in named if not (ROOT / page.decode()).is_file()) == []
