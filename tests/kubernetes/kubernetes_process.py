"""Runs process `kubernetes` by itself.

`kubernetes_process.py RUN_DIR SERVICE_ACCOUNT PORT [MODULE.NAME=NUMBER…]`; port 0: there is no API server; the rest are
times of modules, for a test.
"""

import importlib
import sys
from pathlib import Path

from devherd import log
from devherd.config.resolved import read_resolved
from devherd.kubernetes.access import ApiAccess
from devherd.kubernetes.main import ApiServerClient
from devherd.process import Child, Heartbeats

if __name__ == "__main__":
    run_dir, service_account, port, *times = sys.argv[1:]
    for time in times:
        name, _, value = time.partition("=")
        module, _, name = name.rpartition(".")
        found = importlib.import_module(f"devherd.kubernetes.{module}")
        assert hasattr(found, name)
        setattr(found, name, float(value))
    log.configure("kubernetes", "info", "text")
    heartbeats = Heartbeats(1)
    settings = read_resolved(Path(run_dir) / "config.json").settings()
    child = Child("kubernetes", settings, heartbeats, heartbeats.claim())
    access = ApiAccess("127.0.0.1", int(port), Path(service_account)) if port != "0" else None
    sys.exit(ApiServerClient(child, access).run())
