"""Runs process `kubernetes:nvidia-pause` by itself: run directory, service account's directory, port as arguments."""

import sys
from pathlib import Path

from devherd import log
from devherd.kubernetes import nvidia_pause
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api
from devherd.process import Child, Heartbeats
from devherd.settings import Settings

if __name__ == "__main__":
    run_dir, service_account, port = sys.argv[1:]
    log.configure("kubernetes:nvidia-pause", "info", "text")
    nvidia_pause.REWRITE_SECONDS = 0.5
    heartbeats = Heartbeats(1)
    child = Child("kubernetes:nvidia-pause", Settings(run_dir=Path(run_dir)), heartbeats, heartbeats.claim())
    api = Api(Access("127.0.0.1", int(port), Path(service_account)))
    sys.exit(nvidia_pause.NvidiaPause(child, nvidia_pause.Follower(api)).run())
