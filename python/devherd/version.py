"""Which devherd this is."""

import os

from devherd import _native


def version() -> str:
    """The version, as it was built."""
    return _native.__version__


def revision() -> str:
    """The source revision: what the environment of an image says, else what a wheel or an image was built from."""
    return os.environ.get("DEVHERD_REVISION") or _native.__revision__ or "unknown"


def version_line() -> str:
    """What `devherd --version` prints: the revision, too, where it is known."""
    known = revision()
    return f"devherd {version()}" if known == "unknown" else f"devherd {version()} ({known})"
