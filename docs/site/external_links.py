"""A Sphinx extension: writes every link out of the site into external-links.txt. None of them is fetched."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    if error:
        return
    pages: dict[str, set[str]] = {}
    for page in sorted(app.env.found_docs):
        for reference in app.env.get_doctree(page).findall(nodes.reference):
            if (target := reference.get("refuri", "")).startswith(("http:", "https:")):
                pages.setdefault(target, set()).add(page)
    lines = [f"{target}  {' '.join(sorted(pages[target]))}\n" for target in sorted(pages)]
    Path(app.outdir, "external-links.txt").write_text("".join(lines), "utf-8")
