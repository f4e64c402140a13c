"""docs/test-your-plugin.md: plugin_testing.md, with what `check` finds and what the pytest fixture has."""

import inspect
import tomllib
from pathlib import Path

from tables import table

from devherd_sim import pytest_plugin
from devherd_sim.kubelet.events import KINDS
from devherd_sim.kubelet.plugin_findings import CURES

NAME = "test-your-plugin"
"""A page's name may have dashes, a module's may not."""


def page() -> str:
    """The whole page."""
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    options = ", ".join(f"`{name}`" for name in pytest_plugin.OPTIONS)
    made = {"CHECKS": _checks(), "METHODS": _methods(), "KEYS": _keys(), "KINDS": _kinds()}
    for word, part in made.items():
        text = text.replace(f"{word}\n", f"{part}\n")
    return text.replace("OPTIONS", options).rstrip() + "\n"


def _checks() -> str:
    return table(("finding", "cure"), ((f"`{check}`", cure) for check, cure in CURES.items()))


def _keys() -> str:
    """What each action prints, from plugin_testing.toml; a key without a meaning belongs to the one before it."""
    actions = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    rows: list[tuple[str, str, str]] = []
    for action, keys in actions.items():
        for number, (key, meaning) in enumerate(keys.items()):
            if meaning:
                rows.append((f"`{action}`" if number == 0 else "", f"`{key}`", meaning))
            else:
                rows[-1] = (rows[-1][0], f"{rows[-1][1]}, `{key}`", rows[-1][2])
    return table(("action", "key", "means"), rows)


def _kinds() -> str:
    rows = ((f"`{kind}`", ", ".join(f"`{name}`" for name in names), means) for kind, (means, names) in KINDS.items())
    return table(("kind", "besides", "means"), rows)


def _methods() -> str:
    """Methods of the fixture, with what each says of itself, in one line."""
    methods = inspect.getmembers(pytest_plugin.Kubelet, inspect.isfunction)
    rows = (
        (f"`{name}{_words(method)}`", " ".join((inspect.getdoc(method) or "").split()))
        for name, method in methods
        if not name.startswith("_")
    )
    attributes = "`directory`, `plugin_directory`, `socket` and `log` are paths, `programs` is what `run` has started."
    return f"{table(('method', 'does'), rows)}\n{attributes} {_of_the_class()}\n"


def _words(method: object) -> str:
    signature = inspect.signature(method)  # type: ignore[arg-type]
    words = [each for each in signature.parameters.values() if each.name != "self"]
    plain = [word.replace(annotation=inspect.Parameter.empty) for word in words]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _of_the_class() -> str:
    return " ".join((inspect.getdoc(pytest_plugin.Kubelet) or "").split("\n\n")[1].split())
