"""Python reads no sysfs, procfs and /dev of the host: the scan core does, behind its fence.

What Python itself opens there is listed here, with the reason. Text in messages and documentation is no path.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / "python" / "devherd"

OF_THE_HOST = re.compile(r"/?(sys|proc|dev)(/.*)?", re.DOTALL)

GRANTED = "granted to a child, not read"
ALLOWED = {
    "cli/nvidia_device_plugin.py": ("whether a mount is there", "proc/driver"),
    "doctor/bundle.py": ("a command: the kernel's own variables, no device is asked", "sys/bus/pci/devices"),
    "doctor/environment.py": ("this process", "/proc/self/status"),
    "doctor/notifications.py": (
        "a command: limits and names, and whether the log can be opened",
        "/proc/sys/fs/inotify/max_user_instances",
        "/proc/sys/kernel/dmesg_restrict",
        "dev/kmsg",
        "sys/class/net",
    ),
    "doctor/pids.py": (
        "a command: the limits of a process of devherd's, which the kernel keeps itself",
        "/proc/",
        "/sys/fs/cgroup",
    ),
    "exporter/metrics.py": ("processes of devherd's", "/proc"),
    "history.py": ("the kernel's own", "/proc/sys/kernel/random/boot_id"),
    "ledger/processes.py": ("who has a device open: procfs waits for no device there", "/proc"),
    "mounts.py": ("a process of devherd's", "/proc/"),
    "process.py": ("processes of devherd's, and what they have started", "/proc", "/proc/"),
    "scanner/host_events.py": ("this process", "/proc/self/uid_map"),
    "sources/amd_kfd.py": ("whether a simulated node permits it", "dev/kfd"),
    "sources/nvml/main.py": ("this process, and the names in its own /dev", "/dev", "/proc/self/fd/"),
    "supervisor/options.py": ("a limit of this process", "/proc/sys/fs/inotify/max_user_instances"),
    "supervisor/orphans.py": ("what programs have started", "/proc/"),
    "supervisor/programs.py": (GRANTED, "/dev", "/proc", "/sys", "dev/kfd", "sys"),
    "supervisor/sandbox.py": (
        GRANTED,
        "/dev/urandom",
        "/proc/sys/net/core/somaxconn",
        "/sys/devices/system/cpu/online",
    ),
}
"""By file: the reason, and how the paths begin."""


def text_of(node):
    """A literal, or the beginning of one with values in it; None of anything else."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def literals_of_paths(tree):
    """The literals that become paths: behind `/`, and given to `Path`, `open` or `map(Path, …)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.right
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"Path", "open", "joinpath"}:
                yield from node.args
            elif name == "map" and getattr(node.args[0], "id", "") == "Path":
                yield from (one for each in node.args[1:] for one in getattr(each, "elts", ()))


def paths_into_the_host(source):
    """Those of them that lead into sysfs, procfs or /dev."""
    texts = map(text_of, literals_of_paths(ast.parse(source)))
    return [text for text in texts if text and text != "/dev/null" and OF_THE_HOST.fullmatch(text)]


def test_python_opens_nothing_of_the_host_but_what_is_listed():
    """A read that hangs would hang a process: in the scan core a deadline holds for it."""
    found = defaultdict(set)
    for file in sorted(PYTHON.rglob("*.py")):
        for text in paths_into_the_host(file.read_text("utf-8")):
            found[str(file.relative_to(PYTHON))].add(text)
    assert found == {name: set(paths) for name, (_, *paths) in ALLOWED.items()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("root / 'sys/class/kfd'", ["sys/class/kfd"]),
        ("Path(f'/proc/{pid}/stat')", ["/proc/"]),
        ("open('/dev/kmsg')", ["/dev/kmsg"]),
        ("map(Path, ('/etc', '/sys'))", ["/sys"]),
        ("log.info('/sys is read-only')", []),
        ("directory / 'system'", []),
    ],
)
def test_a_path_is_told_from_text(source, expected):
    """By where it is used."""
    assert paths_into_the_host(source) == expected
