"""Every bench in turn, and at the end the table of all figures: `make bench`.

Exit code 1 when one of them failed; the others run anyway.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import TABLE, machine, versions


def main() -> int:
    """Run all benches and print the time."""
    print(f"{machine()}\n{versions()}", flush=True)
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as table:
        os.environ[TABLE] = table.name
        failed = [bench.name for bench in sorted(Path(__file__).parent.glob("bench_*.py")) if not _run(bench)]
        print(f"\n# The whole table: {machine()}, load {os.getloadavg()[0]:.1f} at the end\n{table.read()}")
    print(f"\n{time.monotonic() - began:.0f} s" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _run(bench: Path) -> bool:
    print(f"\n# {bench.name}, load {os.getloadavg()[0]:.1f}", end="", flush=True)
    return subprocess.run([sys.executable, bench], check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
