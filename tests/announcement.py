"""A line for whoever waits for the tests, past pytest's capture: what is built before a test can run."""

import sys

import pytest


def announce(config: pytest.Config, text: str) -> None:
    """Print it on stderr at once, also from a worker of pytest-xdist."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)
