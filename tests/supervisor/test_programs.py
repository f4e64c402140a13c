"""The programs of an instance, as data."""

import importlib

from devherd.supervisor.programs import DEVHERD


def test_the_module_of_each_program_has_its_main_function():
    """It is named by a word, and imported in the child alone."""
    assert all(callable(importlib.import_module(program.module).main) for program in DEVHERD.children)
