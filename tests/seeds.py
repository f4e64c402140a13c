"""The seed of everything that tests leave to chance: fixed, so that a failure comes again; printed at the start."""

import os
import secrets
from random import Random

_GIVEN = os.environ.get("DEVHERD_TEST_SEED", "1")
IS_RANDOM = _GIVEN == "random"
SEED = secrets.token_hex(4) if IS_RANDOM else _GIVEN
os.environ["DEVHERD_TEST_SEED"] = SEED  # for the workers of pytest-xdist


def random_of(name: str) -> Random:
    """A sequence of its own for this test."""
    return Random(f"{SEED}/{name}")
