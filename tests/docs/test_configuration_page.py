"""docs/configuration.md has every key, and its examples do what they say."""

import re
from pathlib import Path

import pytest

from devherd.config.checks import FACTS_OF_VENDOR
from devherd.config.describe import keys_of
from devherd.config.loader import valid
from devherd.config.model import Config
from devherd.settings import COMMON_OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")


def keys_below(section):
    """The names of all keys."""
    for key in keys_of(section):
        yield key.name
        if key.section:
            yield from keys_below(key.section)


def test_every_key_option_and_fact_is_on_the_page():
    """Nothing of it was in any file that users have."""
    named = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
    facts = {fact for of_vendor in FACTS_OF_VENDOR.values() for fact in of_vendor}
    variables = {f"DEVHERD_{name.upper()}" for name in COMMON_OPTIONS}

    assert {*keys_below(Config), *facts, *variables, *FACTS_OF_VENDOR} - {"exclude"} - named == set()


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_of_the_page_is_a_configuration(example):
    """As somebody pastes it into a file."""
    assert valid("example", example).model_dump() != Config().model_dump()
