"""A claim that is prepared and unprepared, without the kubelet's gRPC: one device, and eight with joined variables.

The API server is a process of its own on this machine, with TLS, in Python: its time is part of every Prepare, and of
the floor, which is the same GET over a kept connection. Records lie on a disk and are synced, CDI specs in memory.
"""

import asyncio
import http.client
import http.server
import json
import multiprocessing
import ssl
import subprocess
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from measure import figure, headline, milliseconds, percentile, ratio, timing

from devherd.cdi import file_name
from devherd.config.api_access import ApiAccess
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.dra.claim import ClaimOfPod
from devherd.dra.pools import Pools, Published
from devherd.dra.preparation import Preparation
from devherd.inventory import DeviceKey
from devherd.proto.spool_pb2 import Edits

NODE, DRIVER, KIND = "node-1", "gpu.example.com", "example.com/gpu"
REPEATS = 200
AT_ONCE = 64
DEVICES = 8


def main() -> None:
    """Print the figures."""
    headline("preparing claims")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as disk, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        certificate, key = _certificate(Path(memory))
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(certificate, key, theirs))
        server.start()
        try:
            asyncio.run(_measure(Path(disk), Path(memory), certificate, ours.recv()))
        finally:
            server.terminate()
            server.join()


async def _measure(disk: Path, memory: Path, certificate: Path, port: int) -> None:
    floor = _bare_calls(certificate, port)
    timing("floor: a bare GET over a kept connection", floor)
    preparation = _preparation(disk, memory, certificate, port)
    for devices in (1, DEVICES):
        first, again, ended = [], [], []
        for number in range(REPEATS):
            claim = _claim(number, devices)
            first.append(await _seconds(preparation.prepare(DRIVER, claim)))
            again.append(await _seconds(preparation.prepare(DRIVER, claim)))
            ended.append(await _seconds(preparation.unprepare(DRIVER, claim.uid)))
        what = f"{devices} device{'s, variables joined' if devices > 1 else ''}"
        timing(f"Prepare, {what}", first, "<= 10 ms", f"{ratio(first, floor)} the floor")
        timing(f"  the same claim again, {what}", again, "", f"{ratio(again, floor)} the floor")
        timing(f"Unprepare, {what}", ended)
    times = await asyncio.gather(*(_seconds(preparation.prepare(DRIVER, _claim(one, 1))) for one in range(AT_ONCE)))
    figure(f"{AT_ONCE} claims at once: p50", milliseconds(percentile(times, 0.5)))
    figure(f"{AT_ONCE} claims at once: the last", milliseconds(max(times)))
    preparation.close()


async def _seconds(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began


def _bare_calls(certificate: Path, port: int) -> list[float]:
    trusted = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusted)
    times = []
    for number in range(REPEATS):
        began = time.perf_counter()
        connection.request("GET", f"/namespaces/default/resourceclaims/{_claim(number, 1).name}")
        json.loads(connection.getresponse().read())
        times.append(time.perf_counter() - began)
    connection.close()
    return times[1:]


def _claim(number: int, devices: int) -> ClaimOfPod:
    """One whose name says what the server has of it."""
    return ClaimOfPod("default", f"claim-{number}-{devices}", f"00000000-0000-4000-8000-{devices:04}{number:08}")


@dataclass(frozen=True)
class _Device:
    """What is used of a published device."""

    name: str
    key: DeviceKey


class _PoolFiles:
    """The pools of this node, as they stand."""

    def __init__(self) -> None:
        found = [_Device(f"gpu-{number}", ("example", "card", f"gpu-{number}")) for number in range(AT_ONCE)]
        self.pools = Pools()
        self.edits = {one.key: Edits(cdi_devices=[f"{KIND}={one.name}"], envs={"PCIDEVICE": one.name}) for one in found}
        self._by_name = {one.name: one for one in found}

    def look(self) -> bool:
        """Nothing changes."""
        return False

    def device(self, _: str, name: str) -> Published | None:
        """The device of this name."""
        return self._by_name.get(name)  # type: ignore[return-value]


def _preparation(disk: Path, memory: Path, certificate: Path, port: int) -> Preparation:
    config = Config.model_validate({"run_dir": str(memory), "state_dir": str(disk), "host_root": str(memory)})
    resolved = resolve(config)
    common = replace(resolved.common, kubeconfig=memory / "kubeconfig")
    api = ApiAccess(host="127.0.0.1", port=port, ca_file=certificate)
    resolved = replace(resolved, common=common, api=api)
    resolved.cdi_directory.mkdir(parents=True)
    (resolved.cdi_directory / file_name(KIND)).write_text("{}")
    return Preparation(common, resolved, NODE, _PoolFiles())  # type: ignore[arg-type]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        _, number, devices = self.path.rpartition("/")[2].split("-")
        first = int(number) % AT_ONCE if devices == "1" else 0
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{first + each}"}
            for each in range(int(devices))
        ]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"uid": _claim(int(number), int(devices)).uid},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        content = json.dumps(claim).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def _serve(certificate: Path, key: Path, port: Connection) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port.send(server.server_port)
    server.serve_forever()


def _certificate(directory: Path) -> tuple[Path, Path]:
    certificate, key = directory / "ca.crt", directory / "key"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 1 -subj /CN=api"
    options += " -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", key, "-out", certificate]
    subprocess.run(["openssl", "req", *options.split(), *files], check=True, capture_output=True)
    return certificate, key


if __name__ == "__main__":
    main()
