"""A Sphinx extension: the site's own address leads to its first page, which is docs/index.md in the checkout."""

from pathlib import Path

from sphinx.application import Sphinx

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={first}">
<title>devherd</title>
<a href="{first}">devherd</a>
</html>
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}


def _write(app: Sphinx, _error: Exception | None) -> None:
    Path(app.outdir, "index.html").write_text(PAGE.format(first=f"{app.config.root_doc}.html"), "utf-8")
