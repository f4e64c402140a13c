"""The site: every Markdown page of the checkout, with its links as they are; `make docs` builds it.

The whole checkout is the source directory, so that a link from one page to another is the same in an editor, in a
browser of the repository and here, and is checked. https://www.sphinx-doc.org/en/master/usage/configuration.html
"""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "site"))

project = "devherd"
author = "the devherd authors"
copyright = author  # noqa: A001 # Sphinx names it so
release = tomllib.loads((HERE.parent / "Cargo.toml").read_text("utf-8"))["package"]["version"]

extensions = ["myst_parser", "external_links", "front_door"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "benches/*.md", "tests/README.md", "tests/claims.md"]
exclude_patterns = [".*", "target", "dist", "python", "rust", "tests/*/*", "docs/generate", "docs/site"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
myst_heading_slug_func = "github"  # a link to a heading is the same there
nitpicky = True

html_theme = "furo"
html_title = f"devherd {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}  # there is no public repository to edit a page in
