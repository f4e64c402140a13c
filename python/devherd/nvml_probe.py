"""`python -m devherd.nvml_probe` asks NVIDIA's library once and prints what it tells as JSON (rust/src/nvml/facts.rs).

The scanner runs it as a process of its own, since the library may hang or crash: hence no imports but these, and no
argument parser. Exit codes are those of `devherd.errors.ExitCode`: 1 = the library cannot be used, 4 = there is none.
"""

import sys

from devherd._native import nvml_facts

USAGE = """usage: python -m devherd.nvml_probe [--driver-root DIR] [--library PATH]

Prints what NVML tells of this host's GPUs, as JSON. The library is looked for below the driver root, then by its path
or name; without options, on this system.

example: python -m devherd.nvml_probe --driver-root /run/nvidia/driver
"""
OPTIONS = ("--driver-root", "--library")
SYSTEM = {"--driver-root": "/", "--library": "libnvidia-ml.so.1"}


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    if {"-h", "--help"} & {*arguments}:
        print(USAGE, end="")
        return 0
    names, values = arguments[::2], arguments[1::2]
    if len(names) != len(values) or not {*names} <= {*OPTIONS}:
        print(USAGE, end="", file=sys.stderr)
        return 2
    options = dict(zip(names, values, strict=True)) or SYSTEM
    try:
        print(nvml_facts(options.get("--driver-root"), options.get("--library")))
    except OSError as error:
        print(f"devherd: {error}", file=sys.stderr)
        return 4 if isinstance(error, FileNotFoundError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
