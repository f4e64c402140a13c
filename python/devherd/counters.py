"""Counters and histograms that outlive a child: prometheus-client's multiprocess files, keyed by child name.

Call `keep_in` once, before the first metric of a process is touched; the supervisor does so before it forks, and
`belong_to` right after each fork. What is a fact of the moment (devices, health, registration) is not counted here: the
exporter reads it from the spool.
"""

import os
from pathlib import Path

_owner = "supervisor"


def keep_in(directory: Path) -> None:
    """Use multiprocess files below `directory`; must run before prometheus_client is imported."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    from prometheus_client import values  # noqa: PLC0415 - reads the environment variable when imported

    from devherd.counter_file import CounterFile  # noqa: PLC0415 - as above

    values.MmapedDict = CounterFile  # type: ignore[attr-defined]
    values.ValueClass = values.MultiProcessValue(lambda: _owner)  # type: ignore[no-untyped-call]


def belong_to(child: str) -> None:
    """Count for this child from now on: prometheus-client looks at its owner's name each time a value is touched."""
    global _owner  # noqa: PLW0603 - one owner a process, like the pid that it stands for
    _owner = child
