"""Which devherd this is."""

import os

from devherd import _native


def version() -> str:
    """The version, as it was built."""
    return _native.__version__


def revision() -> str:
    """The source revision that an image was built from, which its build leaves in the environment."""
    return os.environ.get("DEVHERD_REVISION", "unknown")
