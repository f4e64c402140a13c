"""Dynamic Resource Allocation in a whole cluster: start, a kubelet that comes back, pods, kills; memory.

The cluster is that of tests/cluster: etcd, API server, scheduler, controllers and kubelet of the release that the tests
run beside, with a runtime that only writes down. Needs root and Go; `make test` builds the programs.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import figure, headline, megabytes, ratio, timing, use_byte_code
from processes import own_bytes

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "cluster")]

from dra_cluster import COUNTS, ENVIRONMENT, SIMULATED, SLICES, DraCluster  # noqa: E402 - by the path above
from go_program import GoProgram  # noqa: E402 - likewise
from private_machine import NAME, PrivateMachine  # noqa: E402 - likewise
from whole_node import WholeNode, pod  # noqa: E402 - likewise

ROUNDS = 7
EVERYTHING = {"front_end": "dra", "simulated": [{"name": "example.com/x", "count": 4}]}
SETTLE_SECONDS = 3.0
_LOOK_SECONDS = 0.002
_PATIENCE_SECONDS = 60.0
_FLOOR = """
import http.client, json, ssl, statistics, sys, time
connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=ssl._create_unverified_context())
headers = {"Authorization": "Bearer a-token", "Content-Type": "application/json"}
times = []
for method, path, body in json.load(open(sys.argv[1])):
    began = time.perf_counter()
    connection.request(method, path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    assert answer.status < 300, answer.read()
    answer.read()
    times.append(time.perf_counter() - began)
print(json.dumps(times))
"""


def main() -> None:
    """Print the figures."""
    headline("DRA in a whole cluster: 8 AMD GPUs and 64 simulated devices")
    if os.geteuid() or not (go := shutil.which("go")):
        print("not measured: a private machine takes root, and its programs Go")
        return
    use_byte_code()
    with _cluster(GoProgram(TESTS / "cluster/programs", "programs", "the cluster").built(go, print)) as dra:
        floor = [_floor_of_slices(dra) for _ in range(ROUNDS)]
        timing("floor: exec of Python that writes the same slices", floor)
        starts = [_start(dra) for _ in range(ROUNDS)]
        timing("devherd exec'ed to its slices", starts, "<= 1 s", f"{ratio(starts, floor)} the floor")
        gaps, ups = zip(*(_kubelet(dra) for _ in range(ROUNDS)), strict=True)
        timing("kubelet killed and started: slices gone to slices back", gaps, "<= 200 ms")
        timing("  from the kubelet's first answer", ups, "<= 200 ms")
        bare = [_pod(dra, f"bare-{number}", lambda: None) for number in range(ROUNDS)]
        timing("floor: a pod without claim, created to running", bare)
        plain = [_claiming(dra, f"plain-{number}", lambda: None) for number in range(ROUNDS)]
        timing("a pod with a claim, created to running", plain, "", f"{ratio(plain, bare)} the floor")
        for name in ("dra:a", "dra:b"):
            killed = [_killed(dra, name, number) for number in range(ROUNDS)]
            timing(f"  {name} SIGKILLed at that moment", killed, "<= 3 s", f"{ratio(killed, plain)} without")
    _eight_drivers()


@contextlib.contextmanager
def _cluster(program: Path) -> Iterator[DraCluster]:
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    machine = PrivateMachine(directory)
    node = WholeNode(machine, program)
    try:
        yield DraCluster(node)
    finally:
        node.close()
        machine.close()
        shutil.rmtree(directory)


def _until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, LookupError):
            if value := condition():
                return value
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(what)


def _ask_in_python(dra: DraCluster, calls: list[tuple[str, str, Any]]) -> list[float]:
    """The seconds of each call over one connection."""
    (dra.node.directory / "run/calls.json").write_text(json.dumps(calls))
    asked = dra.node.machine.start(sys.executable, "-c", _FLOOR, "/run/calls.json", stdout=-1, text=True)
    return json.loads(asked.popen.communicate()[0])


def _floor_of_slices(dra: DraCluster) -> float:
    bodies = [
        {"metadata": {"generateName": "floor-"}, "spec": each["spec"] | {"driver": f"floor.{each['spec']['driver']}"}}
        for each in dra.slices()
    ]
    began = time.monotonic()
    _ask_in_python(dra, [("POST", SLICES, body) for body in bodies])
    seconds = time.monotonic() - began
    for driver in COUNTS:
        dra.made(f"{SLICES}?fieldSelector=spec.driver%3Dfloor.{driver}", None, "DELETE")
    return seconds


def _start(dra: DraCluster) -> float:
    dra.node.herd.stop()
    dra.made(f"{SLICES}?fieldSelector=spec.nodeName%3D{NAME}", None, "DELETE")
    began = time.monotonic()
    dra.node.start_herd(**ENVIRONMENT)
    _until(lambda: dra.counts() == COUNTS, "slices")
    seconds = time.monotonic() - began
    dra.until_registered()
    return seconds


def _kubelet(dra: DraCluster) -> tuple[float, float]:
    """From the slices' end to the others' being there; the same from the kubelet's first answer on."""
    before = {each["metadata"]["uid"] for each in dra.slices()}
    dra.node.kubelet.stop(9)
    dra.node.start_kubelet()
    up = time.monotonic()
    _until(lambda: not before & {each["metadata"]["uid"] for each in dra.slices()}, "slices are wiped")
    gone = time.monotonic()
    _until(lambda: dra.counts() == COUNTS, "slices")
    back = time.monotonic()
    dra.until_registered()
    return back - gone, back - up


def _pod(dra: DraCluster, name: str, just_before: Callable[[], None]) -> float:
    just_before()
    began = time.monotonic()
    dra.make("/api/v1/namespaces/default/pods", pod(name, {}))
    _until(lambda: dra.node.runtime.containers(name, "RUNNING"), name)
    seconds = time.monotonic() - began
    dra.end(name)
    return seconds


def _claiming(dra: DraCluster, name: str, just_before: Callable[[], object]) -> float:
    dra.claim(name, SIMULATED)
    just_before()
    began = time.monotonic()
    dra.with_claim(name, name)
    _until(lambda: dra.node.runtime.containers(name, "RUNNING"), name)
    seconds = time.monotonic() - began
    dra.clean()
    return seconds


def _killed(dra: DraCluster, process: str, number: int) -> float:
    pid = 0

    def kill() -> None:
        nonlocal pid
        pid = dra.kill(process)

    seconds = _claiming(dra, f"{process.replace(':', '-')}-{number}", kill)
    dra.until_replaced(process, pid)
    return seconds


def _eight_drivers() -> None:
    """Without a kubelet: the processes serve, and nobody asks."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    SimulatedNode.create(directory / "node", preset("everything"))
    (directory / "config.yaml").write_text(json.dumps(EVERYTHING))
    places = {"config": "config.yaml", "host-root": "node", "kubelet-dir": "k", "run-dir": "run"}
    for name in ("plugins", "plugins_registry"):
        (directory / "k" / name).mkdir(parents=True)
    options = [f"--{option}={directory / name}" for option, name in places.items()]
    with subprocess.Popen(
        [sys.executable, "-m", "devherd", "run", *options, "--listen="],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"NODE_NAME": NAME},
    ) as herd:
        try:
            sockets = _until(lambda: _all_sockets(directory / "k/plugins_registry"), "sockets")
            time.sleep(SETTLE_SECONDS)
            children = spool.read_or_empty(directory / "run/children.pb", spool_pb2.Children).children
            sizes = [own_bytes(each.pid) for each in children if each.name.startswith("dra:")]
        finally:
            herd.terminate()
    shutil.rmtree(directory)
    figure(f"the pair's own memory, {sockets // 2} drivers", megabytes(sum(sizes)), "<= 12 MB with eight")


def _all_sockets(registry: Path) -> int:
    """How many sockets the two processes have, once it has not changed for a while."""
    count = len([*registry.glob("*-reg.sock")])
    time.sleep(1)
    return count if count and count == len([*registry.glob("*-reg.sock")]) else 0


if __name__ == "__main__":
    main()
