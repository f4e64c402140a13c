"""docs/test-your-plugin.md: plugin_testing.md, with the names of what `check` finds and the pytest fixture has."""

import inspect
from pathlib import Path

from devherd_sim import pytest_plugin
from devherd_sim.kubelet.plugin_findings import CURES

NAME = "test-your-plugin"
"""A page's name may have dashes, a module's may not."""


def page() -> str:
    """The whole page."""
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    methods = [name for name, _ in inspect.getmembers(pytest_plugin.Kubelet, inspect.isfunction) if name[0] != "_"]
    for word, names in {"OPTIONS": pytest_plugin.OPTIONS, "METHODS": methods, "CHECKS": CURES}.items():
        text = text.replace(word, ", ".join(f"`{name}`" for name in names))
    return text.rstrip() + "\n"
