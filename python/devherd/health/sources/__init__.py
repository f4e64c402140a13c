"""Sources that run as separate processes, because they can hang or need a library.

A source runs while the scanner has a request for it in `<run-dir>/requests`. It writes facts to
`<run-dir>/facts` and findings to `<run-dir>/findings`; no other process waits for it.
"""

from pathlib import Path

EXTERNAL = "external-"
"""How the names of those sources begin that are programs and files of the operator's."""
AMD_EXPORTER = "amd-exporter"
XPUMD = "xpumd"
AMD_KFD = "amd-kfd"


def temporary_directory(findings: Path) -> Path:
    """Where a program of the operator's may write, below the directory of its findings."""
    return findings / "tmp"
