"""Makes the pages of docs/ that come from the program itself: `make docs-pages`.

Each module PAGE.py beside this file that has a function `page() -> str` makes docs/PAGE.md, or what it says as `NAME`
and `SUFFIX`.
"""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated page, and what it has to say."""
    for source in sorted(HERE.glob("[!_]*.py")):
        module = importlib.import_module(source.stem)
        if hasattr(module, "page"):
            name, suffix = getattr(module, "NAME", source.stem), getattr(module, "SUFFIX", ".md")
            yield DOCS / f"{name}{suffix}", module.page()


def main() -> int:
    """Write the pages; with `--check` only say which are others."""
    parser = argparse.ArgumentParser(description="Make the pages of docs/ that come from the program itself.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where a page is another")
    check = parser.parse_args().check
    stale = [(file, made) for file, made in pages() if not file.exists() or file.read_text("utf-8") != made]
    for file, made in stale:
        if check:
            print(f"{_shown(file)} is not what the program says: run `make docs-pages`", file=sys.stderr)
        else:
            file.write_text(made, "utf-8")
            print(f"wrote {_shown(file)}")
    return 1 if check and stale else 0


def _shown(file: Path) -> Path:
    """As one names it at the top of the checkout."""
    return file.resolve().relative_to(DOCS.parent)


if __name__ == "__main__":
    raise SystemExit(main())
