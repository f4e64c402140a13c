"""Running a program that as root writes to places of the system: it gets empty directories there, which end with it."""

import os
import subprocess

from not_tested import not_tested


def unshared(*covered):
    """The start of a command line; for root, what follows finds these directories empty. Others cannot write there."""
    if os.geteuid() != 0:
        return []
    cover = "".join(f"mount -t tmpfs none {directory} && " for directory in covered)
    return ["unshare", "--mount", "sh", "-c", f'{cover} exec "$@"', "sh"]


def skip_without_namespaces():
    """Skip the test where it cannot have mounts and a network of its own: that takes root. With CI=true it fails."""
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        not_tested(tried.stderr.decode().strip())
