"""docs/helm-values.md: the values of the Helm chart, as values.yaml has and explains them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tables import table

NAME = "helm-values"
CHART = Path(__file__).parents[2] / "deploy" / "helm" / "devherd"

HEAD = """\
# Values of the Helm chart

*Generated from `values.yaml` of the chart by `make docs-pages`.*

How to install the chart, with complete examples of values: [Install in Kubernetes](kubernetes.md#by-helm). Unknown
values, wrong types and unknown keys of the configuration are refused before anything is sent. The values of the first
table apply to the whole release.
"""

OF_A_POOL = """\
## What each pool may have of its own

At the top level they apply to all pools. A pool's maps (`config`, `resources`, `nodeSelector`, …) are merged over
those, its lists (`components`, `tolerations`, …) replace them.
"""

MONITORING = "## Metrics, alerts and access\n"


def page() -> str:
    """The whole page. Raises ValueError where a value has no comment."""
    text = (CHART / "values.yaml").read_text("utf-8")
    rows = [(path, _default(yaml.safe_load(text), path), comment) for path, comment in _described(text)]
    top = [path.partition(".")[0] for path, *_ in rows]
    first, last = top.index("vendors"), top.index("podMonitor")
    parts = [HEAD, _table(rows[:first]), OF_A_POOL, _table(rows[first:last]), MONITORING, _table(rows[last:])]
    return "\n".join(parts)


def _table(rows: list[tuple[str, str, str]]) -> str:
    return table(
        ("value", "default", "what it is"), ((f"`{path}`", f"`{default}`", what) for path, default, what in rows)
    )


def _described(text: str) -> Iterator[tuple[str, str]]:
    """The path of each value, and the comment above it; a line without a comment that has values below is a group."""
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    inside = -1  # the indentation of a value, below which there are no more
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if inside >= 0 and line and indent > inside:
            continue
        if match := re.match(r" *# (.*)", line):
            comment.append(match[1])
        elif match := re.match(r" *(\w+):(.*)", line):
            above = [each for each in above if each[0] < indent] + [(indent, match[1])]
            path = ".".join(key for _, key in above)
            inside = indent if comment else -1
            if comment:
                yield path, " ".join(comment)
            elif match[2]:
                raise ValueError(f"{path} of values.yaml has no comment")
            comment = []
        else:
            comment = []


def _default(values: Any, path: str) -> str:
    for key in path.split("."):
        values = values[key]
    return json.dumps(values)
