"""The other pages: alive, ready, inventory, status page, and what is not there."""

import http.client
import json
import re
import socket
import time

import pytest
from descriptors import none_for

from devherd.proto.spool_pb2 import Child, Device, Edits, Mount, Node, Offer, Problem
from devherd.spool import key_of

GPU = Offer(
    name="example.com/gpu",
    vendor="simulated",
    devices=[
        Device(
            id="0",
            edits=Edits(nodes=[Node(host_path="/dev/a", container_path="/dev/b", permissions="rw")]),
            numa_nodes=[0],
        ),
        Device(
            id="1",
            reasons=["cordoned"],
            edits=Edits(mounts=[Mount(host_path="/x", container_path="/y", read_only=True)]),
        ),
    ],
)
SCANNER = Child(name="scanner", heartbeat_slot=0, pid=1, state="RUNNING", started_timestamp_seconds=1.0)


def test_an_instance_whose_scanner_beats_is_alive(instance):
    """The liveness probe passes while supervisor and scanner live, whatever the kubelet does."""
    instance.start()
    instance.put_children(SCANNER)

    assert instance.ask("/healthz")[::2] == (200, "ok\n")


def test_an_exporter_that_answers_runs_though_the_supervisor_has_not_written_that_yet(instance):
    """Defect: the scrape that had woken it could say that it was not up, on a busy machine."""
    instance.start()
    instance.put_children(SCANNER, Child(name="exporter", heartbeat_slot=1, pid=2, state="STARTING"))

    assert 'devherd_child_up{child="exporter"} 1.0' in instance.ask("/metrics")[2]


def test_an_instance_without_children_file_is_not_alive(instance):
    """Nothing is known of a supervisor that has written nothing."""
    instance.start()

    assert instance.ask("/healthz")[::2] == (503, "supervisor: children.pb is missing\n")


def test_a_scanner_that_stopped_beating_is_named(instance):
    """Its last heartbeat is more than ten seconds old: never beaten, started long ago."""
    (instance.run_dir / "scanner-hangs").write_text("60")
    instance.start()
    instance.put_children(SCANNER)

    assert instance.ask("/healthz")[::2] == (503, "scanner: no heartbeat for more than 10 s\n")


def test_a_supervisor_that_hangs_is_named_though_its_process_and_its_children_live(instance):
    """Nobody else replaces children that end: the container's runtime or the service manager has to restart it."""
    (instance.run_dir / "supervisor-hangs").write_text("60")
    instance.start()
    instance.put_children(SCANNER)

    reason = "supervisor: no heartbeat for more than 10 s; children that end are not replaced\n"
    assert instance.ask("/healthz")[::2] == (503, reason)


def test_a_resource_whose_process_gives_no_sign_of_life_is_not_ready(instance):
    """What its state file says was true when it was written."""
    (instance.run_dir / "scanner-hangs").write_text("60")  # its slot is the one of the process below
    instance.put(GPU)
    instance.put_state(GPU.name, registered=True)
    instance.start()
    instance.put_children(Child(name=f"resource:{key_of(GPU.name)}", heartbeat_slot=0, pid=1, state="RUNNING"))

    assert instance.ask("/readyz")[::2] == (503, "example.com/gpu: its process gives no sign of life\n")
    assert (
        f'devherd_registration_state{{resource_name="{GPU.name}",state="child-down"}} 1.0'
        in instance.ask("/metrics")[2]
    )


@pytest.mark.parametrize("years", [0, 10, -10])
def test_a_scanner_that_was_just_started_has_time_to_beat_whatever_the_clock_says(instance, years):
    """Replacing a child must not fail the probe, nor must a clock that is set meanwhile."""
    (instance.run_dir / "scanner-hangs").write_text("0")
    (instance.run_dir / "clock").write_text(str(years * 365 * 86_400))
    instance.start()
    scanner = Child(name="scanner", pid=1, state="RUNNING", started_timestamp_seconds=time.time())
    instance.put_children(scanner)

    assert instance.ask("/healthz")[0] == 200


def test_every_reason_not_to_be_alive_has_its_line(instance):
    """A dead supervisor and a scanner in back-off."""
    instance.start()
    instance.put_children(Child(name="scanner", state="BACKOFF"), supervisor_pid=2**22 + 1)

    status, _, reasons = instance.ask("/healthz")

    assert (status, reasons.splitlines()) == (503, ["supervisor: process 4194305 is gone", "scanner: BACKOFF"])


def test_ready_is_when_the_kubelet_has_every_resource(instance):
    """Each resource that it does not have is named with the reason."""
    instance.start()
    assert instance.ask("/readyz")[::2] == (503, "scanner: no scan has finished yet\n")

    instance.put(GPU)
    assert instance.ask("/readyz")[::2] == (503, "example.com/gpu: no status from its process yet\n")

    instance.put_state(GPU.name, registered=False, detail="the kubelet is away")
    assert instance.ask("/readyz")[::2] == (503, "example.com/gpu: the kubelet is away\n")

    instance.put_state(GPU.name, registered=True)
    assert instance.ask("/readyz")[::2] == (200, "ok\n")


def test_a_scan_that_is_overdue_is_said_by_the_readiness_probe(instance):
    """What is shown is old: the run directory is full, or the scanner waits for something that does not end."""
    instance.put_scan(monotonic_seconds=time.monotonic() - 100, period_seconds=5)
    instance.start()
    reason = "scanner: the last scan was 1 min 4. s ago: changes of devices are not seen\n"
    status, _, body = instance.ask("/readyz")
    assert (status, bool(re.fullmatch(reason, body))) == (503, True), body

    instance.put_scan(monotonic_seconds=time.monotonic() - 100, period_seconds=30)
    assert instance.ask("/readyz")[0] == 200


def test_a_host_without_devices_is_ready(instance):
    """Nothing to register is nothing to wait for."""
    instance.put_scan()
    instance.start()

    assert instance.ask("/readyz")[0] == 200


def test_inventory_is_the_scans_json_with_registration_and_holders(instance):
    """The whole answer; who holds a device is null while there is no kubelet to ask."""
    instance.put(GPU)
    instance.put_scan(Problem(vendor="simulated", path="/sys/x", error="no such thing"), duration_seconds=0.0042)
    instance.put_state(GPU.name, registered=False, detail="the kubelet is away")
    instance.start()

    status, headers, body = instance.ask("/api/v1/inventory")
    inventory = json.loads(body)

    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert inventory.pop("devherd")
    assert inventory == {
        "host": socket.gethostname(),
        "duration_seconds": 0.0042,
        "scanned_at": 1_700_000_000.5,
        "instance": None,
        "http": [{"address": "127.0.0.1:0", "is_served": True, "refusal": None, "cure": None}],
        "standby": None,
        "drivers": [],
        "lost": [],
        "notices": [],
        "resources": [
            {
                "name": "example.com/gpu",
                "vendor": "simulated",
                "registered": False,
                "detail": "the kubelet is away",
                "child": None,
                "devices": [
                    {
                        "id": "0",
                        "health": "Healthy",
                        "reasons": [],
                        "warnings": [],
                        "numa_nodes": [0],
                        "nodes": [{"host_path": "/dev/a", "container_path": "/dev/b", "permissions": "rw"}],
                        "mounts": [],
                        "envs": {},
                        "annotations": {},
                        "cdi_devices": [],
                        "attributes": {},
                        "since": None,
                        "do": None,
                        "allocated": None,
                    },
                    {
                        "id": "1",
                        "health": "Unhealthy",
                        "reasons": ["cordoned"],
                        "warnings": [],
                        "numa_nodes": None,
                        "nodes": [],
                        "mounts": [{"host_path": "/x", "container_path": "/y", "read_only": True}],
                        "envs": {},
                        "annotations": {},
                        "cdi_devices": [],
                        "attributes": {},
                        "since": None,
                        "do": None,
                        "allocated": None,
                    },
                ],
            }
        ],
        "problems": [{"vendor": "simulated", "path": "/sys/x", "error": "no such thing", "device": None}],
    }


def test_what_is_not_there_is_answered_in_text(instance):
    """404 names the pages that there are, 405 the methods."""
    instance.start()

    status, headers, body = instance.ask("/nowhere")
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == "no such page; choose from /, /healthz, /readyz, /api/v1/inventory, /api/v1/openapi.json, /metrics\n"

    for path in ("/", "/metrics", "/healthz"):
        status, headers, body = instance.ask(path, method="DELETE")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert body == "only GET and HEAD: nothing here can be changed over HTTP\n"


def test_head_answers_like_get_without_a_body(instance):
    """Load balancers ask like this."""
    instance.start()

    for path in ("/", "/metrics", "/readyz"):
        status, _, body = instance.ask(path, method="HEAD")
        assert (status, body) == (503 if path == "/readyz" else 200, "")


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/api/v1/inventory", "/metrics"])
def test_head_tells_what_get_would(instance, path):
    """The same type, a length, no body."""
    instance.start()

    status, headers, _ = instance.ask(path)
    head_status, head_headers, head_body = instance.ask(path, method="HEAD")

    assert (head_status, head_body) == (status, "")
    assert head_headers["Content-Type"] == headers["Content-Type"]
    assert int(head_headers["Content-Length"]) > 0
    assert head_headers.keys() == headers.keys()


def test_an_exporter_without_descriptors_says_so_and_shows_no_node_without_devices(instance):
    """Defect: a kept connection got a page, and metrics, of a node that has none; and nobody to be alive."""
    instance.put(GPU)
    instance.start()
    instance.put_children(SCANNER)
    connection = http.client.HTTPConnection(instance.url.removeprefix("http://"), timeout=20)

    def ask(path):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    pages = ("/", "/metrics", "/api/v1/inventory", "/readyz")
    before = [ask(path) for path in (*pages, "/healthz")]
    with none_for(instance.exporter_pid):
        answers = [ask(path) for path in pages]
        alive = ask("/healthz")
    assert [status for status, _ in before] == [200, 200, 200, 503, 200]
    assert [status for status, _ in answers] == [503] * 4
    assert all("cannot read the state of devherd: [Errno 24] Too many open files" in text for _, text in answers)
    assert alive == (200, "ok\n")
    assert ask("/api/v1/inventory")[1] == before[2][1]
