"""docs/test-your-plugin.md: plugin_testing.md, with what `check` finds and what the pytest fixture has."""

import inspect
from pathlib import Path

from tables import table

from devherd_sim import pytest_plugin
from devherd_sim.kubelet.plugin_findings import CURES

NAME = "test-your-plugin"
"""A page's name may have dashes, a module's may not."""


def page() -> str:
    """The whole page."""
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    return text.replace("CHECKS\n", _checks() + "\n").replace("METHODS\n", _methods() + "\n")


def _checks() -> str:
    return table(("finding", "cure"), ((f"`{check}`", cure) for check, cure in CURES.items()))


def _methods() -> str:
    """Methods of the fixture, with the first line of what each says of itself."""
    methods = inspect.getmembers(pytest_plugin.Kubelet, inspect.isfunction)
    rows = (
        (f"`{name}{_words(method)}`", inspect.getdoc(method) or "")
        for name, method in methods
        if not name.startswith("_")
    )
    attributes = "`directory`, `plugin_directory`, `socket` and `log` are paths."
    return f"{table(('method', 'does'), rows)}\n{attributes} {_of_the_class()}\n"


def _words(method: object) -> str:
    signature = inspect.signature(method)  # type: ignore[arg-type]
    words = [each for each in signature.parameters.values() if each.name != "self"]
    plain = [word.replace(annotation=inspect.Parameter.empty) for word in words]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _of_the_class() -> str:
    return " ".join((inspect.getdoc(pytest_plugin.Kubelet) or "").split("\n\n")[1].split())
