"""Time until the API server has the node's ResourceSlices: after the start, after they were wiped; and what rest costs.

The API server is a stub in this process (TLS, watches; tests/kubernetes/slices_api.py), the kubelet the embedded one:
their CPU time is part of every figure.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from herds import directory
from measure import figure, headline, timing, use_byte_code

from devherd.proto import spool_pb2
from devherd.spool import path_of, read_or_empty
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

sys.path += [str(Path(__file__).parents[1] / place) for place in ("tests", "tests/kubernetes")]
from slices_api import SlicesApi

ROUNDS, WIPES, REST_SECONDS = 5, 5, 30.0
DRIVER = "gpu.amd.com"
_PATIENCE_SECONDS = 60.0


def main() -> None:
    """Print the figures."""
    headline("slices of 8 AMD GPUs at the API server")
    use_byte_code()
    os.environ["NODE_NAME"] = "node-1"  # the stub's
    started, registered, wiped = [], [], []
    asyncio.run(one_round([], [], [], rests=False))  # byte code and page cache
    for number in range(ROUNDS):
        asyncio.run(one_round(started, registered, wiped, rests=number == ROUNDS - 1))
    timing("start of devherd to its slices", started, "<= 1 s")
    timing("  the driver registered to its slices", registered)
    timing("slices wiped to slices back", wiped, "<= 200 ms")


async def one_round(started: list[float], registered: list[float], wiped: list[float], *, rests: bool) -> None:
    """A whole instance on a fresh node. Of ten wipes within a minute the last would be repaired more slowly."""
    with directory() as place:
        server = SlicesApi(place / "api")
        kubeconfig = place / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(server)))
        config = {"front_end": "dra", "kubeconfig": str(kubeconfig)}
        herd = Testbed(place, preset("amd-8"), config)
        await herd.kubelet.start()
        try:
            began = await herd.start_herd()
            await _until(lambda: server.store.of(DRIVER))
            started.append(server.created_at - began)
            registered.append(server.created_at - _registered_at(herd))
            for _ in range(WIPES):
                await asyncio.sleep(0.1)
                await _wipe(server, wiped)
            if rests:
                await _rest(server)
        finally:
            await herd.stop_herd()
            await herd.kubelet.stop(clean=True)
            server.close()


async def _wipe(server: SlicesApi, wiped: list[float]) -> None:
    server.node_uid = str(time.monotonic_ns())  # also looked up again
    began = time.monotonic()
    for name in list(server.store.slices):
        server.deed(server.store.delete, name)
    await _until(lambda: server.store.of(DRIVER))
    wiped.append(server.created_at - began)


async def _rest(server: SlicesApi) -> None:
    await asyncio.sleep(2)
    before = len(server.asked)
    await asyncio.sleep(REST_SECONDS)
    calls = server.asked[before:]
    figure(f"requests of a node at rest, in {REST_SECONDS:.0f} s", str(len(calls)), "0, and one watch that goes on")


def _registered_at(herd: Testbed) -> float:
    """Monotonic second of the first registration."""
    states = [path_of(herd.settings.dra_directory, letter) for letter in "ab"]
    drivers = [each for state in states for each in read_or_empty(state, spool_pb2.DraState).drivers]
    times = [each.registered_timestamp_seconds for each in drivers if each.name == DRIVER]
    return min(filter(None, times)) - time.time() + time.monotonic()


async def _until(condition: object) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "no slices"
        await asyncio.sleep(0.002)


def _kubeconfig(server: SlicesApi) -> dict[str, object]:
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.directory / "ca.crt")}
    return {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"tokenFile": str(server.directory / "token")}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }


if __name__ == "__main__":
    main()
