"""Runs process `kubernetes` by itself.

`kubernetes_process.py RUN_DIR SERVICE_ACCOUNT PORT WAITS`; port 0: there is no API server; WAITS is JSON: the
waits that are not as usual.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from devherd import log
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import read_resolved
from devherd.kubernetes.main import ApiServerClient
from devherd.process import Child, Heartbeats
from devherd.waits import Waits

if __name__ == "__main__":
    run_dir, service_account, port, waits = sys.argv[1:]
    log.configure("kubernetes", "info", "text")
    heartbeats = Heartbeats(1)
    settings = read_resolved(Path(run_dir) / "config.json").settings()
    settings = replace(settings, waits=Waits(**json.loads(waits)))
    child = Child("kubernetes", settings, heartbeats, heartbeats.claim())
    access = ApiAccess.of_service_account("127.0.0.1", int(port), Path(service_account)) if port != "0" else None
    sys.exit(ApiServerClient(child, access).run())
