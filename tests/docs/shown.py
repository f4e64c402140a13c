"""What the pages show: their fenced blocks, and the commands in those that a shell reads."""

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / page
    for pattern in ("*.md", "docs/*.md", "benches/*.md", "tests/README.md")
    for page in sorted(ROOT.glob(pattern))
]
SHELL = {"sh", "console"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self):
        """For the list of tests."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command as a reader types it, perhaps over several lines, and what the page says that it prints."""

    block: Block
    text: str
    printed: str = ""

    @property
    def programs(self):
        """The programs that it starts: the first word of each part."""
        without_files = re.sub(r"(<<'?(\w+)'?[^\n]*)\n.*?^\2$", "", self.text, flags=re.DOTALL | re.MULTILINE)
        without_strings = re.sub(r"'[^']*'|\"[^\"]*\"|#[^\n]*", "", without_files)
        parts = re.split(r"\|\||&&|[|;\n({]|\bdo\b", without_strings)
        words = [re.sub(r"^(\s*[A-Z_]+=\S*)+", "", part).split() for part in parts]
        return {first[0] for first in words if first} - {"}", ")", "done"}


def blocks(page):
    """The fenced blocks of a page, also those that are part of a list."""
    text = page.read_text("utf-8")
    fence = re.compile(r"^( *)```([\w{}-]*)(?: \w+)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        indent, language, inner = match.groups()
        lines = [line.removeprefix(indent) for line in inner.splitlines(keepends=True)]
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, language, "".join(lines))


def commands(block):
    """The commands of a block: all of `sh`, in `console` what follows `$ `, with what is below it as its output."""
    if block.language == "sh":
        for text in _whole(block.text.splitlines()):
            yield Command(block, text)
        return
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        text = next(_whole(lines))
        yield Command(block, text, "\n".join(lines[text.count("\n") + 1 :]))


def _whole(lines):
    """Lines, joined until they are a whole command."""
    text = ""
    for line in lines:
        text = f"{text}\n{line}" if text else line
        if not text.strip() or text.lstrip().startswith("#"):
            text = ""
        elif not text.endswith("\\") and _is_whole(text):
            yield text
            text = ""
    assert not text, f"not a whole command: {text}"


@cache
def _is_whole(text):
    read = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    return read.returncode == 0 and not read.stderr  # a here-document without its end is a warning only


ALL = [block for page in PAGES for block in blocks(page)]
COMMANDS = [command for block in ALL if block.language in SHELL for command in commands(block)]
