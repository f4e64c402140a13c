"""Which devherd this is."""

import os
from importlib import metadata


def version() -> str:
    """The installed version; `unknown` when the package runs without having been installed."""
    try:
        return metadata.version("devherd")
    except metadata.PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """The source revision that an image was built from, which its build leaves in the environment."""
    return os.environ.get("DEVHERD_REVISION", "unknown")
