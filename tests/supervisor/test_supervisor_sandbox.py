"""What somebody who has taken over a child can still do: what the child's program may, and nothing else."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from not_tested import not_tested

from devherd import _native, spool
from devherd.proto import spool_pb2

ATTACK = Path(__file__).with_name("attack.py")
OWN, OTHER = "example.com_own", "example.com_other"

RESOURCE_CHILD = {
    "read its offer": "done",
    "list the directory of its offer": "done",
    "write its offer": "EACCES",
    "write its history": "done",
    "write another's history": "EACCES",
    "write its state": "done",
    "serve in the plugin directory": "done",
    "serve in the directory of its driver": "EACCES",
    "serve in the directory of another driver": "EACCES",
    "read what another driver has": "EACCES",
    "remove what another driver has": "EACCES",
    "write a claim": "EACCES",
    "connect to the kubelet": "done",
    "read another's offer": "EACCES",
    "list the offers": "EACCES",
    "write another's offer": "EACCES",
    "read another's state": "EACCES",
    "write another's state": "EACCES",
    "make a state": "EACCES",
    "read the configuration": "EACCES",
    "write a CDI spec": "EACCES",
    "write a file beside its socket": "EACCES",
    "read a secret of a pod": "EACCES",
    "remove a file of a pod": "EACCES",
    "read a file of the host": "EACCES",
    "write a file of the host": "EACCES",
    "read sysfs": "EACCES",
    "read a device": "EACCES",
    "write a device": "EACCES",
    "open the device of AMD's GPUs": "EACCES",
    "make a device": "EACCES",
    "read the supervisor's environment": "EACCES",
    "trace the supervisor": "EPERM",
    "signal the supervisor": "EPERM",
    "reach a TCP port": "EAFNOSUPPORT",
    "reach a UDP port": "EAFNOSUPPORT",
    "reach IPv6": "EAFNOSUPPORT",
    "send raw packets": "EAFNOSUPPORT",
    "talk netlink": "EAFNOSUPPORT",
    "make an x32 socket": "EAFNOSUPPORT",
    "listen on a TCP port": "EAFNOSUPPORT",
    "connect to an abstract socket": "EPERM",
    "open a ring": "EPERM",
    "start a program": "EPERM",
    "start a program from memory": "EPERM",
    "change a mode": "EPERM",
    "mount": "EPERM",
}
"""Everything that is tried, and what comes of it in the child of a resource."""

EXPORTER = RESOURCE_CHILD | {
    "read another's offer": "done",
    "list the offers": "done",
    "read another's state": "done",
    "read the configuration": "done",
    "write its history": "EACCES",
    "write its state": "EACCES",
    "serve in the plugin directory": "EACCES",
    "read a file of the host": "done",
    "reach a TCP port": "EACCES",
    "reach a UDP port": "done",
    "reach IPv6": "EACCES",
    "send raw packets": "EAFNOSUPPORT",
    "talk netlink": "done",
    "listen on a TCP port": "done",
}

SCANNER = EXPORTER | {
    "write its history": "done",
    "write another's history": "done",
    "write its offer": "done",
    "write its state": "done",
    "write another's offer": "done",
    "write another's state": "done",
    "make a state": "done",
    "read what another driver has": "done",
    "write a claim": "done",
    "write a CDI spec": "done",
    "read a secret of a pod": "done",
    "read sysfs": "done",
    "read a device": "done",
    "reach a TCP port": "EAFNOSUPPORT",
    "reach a UDP port": "EAFNOSUPPORT",
    "reach IPv6": "EAFNOSUPPORT",
    "listen on a TCP port": "EAFNOSUPPORT",
    "change a mode": "done",
}

EXTERNAL = SCANNER | {
    "write its history": "EACCES",
    "write another's history": "EACCES",
    "write its offer": "EACCES",
    "write its state": "EACCES",
    "write another's offer": "EACCES",
    "write another's state": "EACCES",
    "make a state": "EACCES",
    "write a claim": "EACCES",
    "write a CDI spec": "EACCES",
    "write a device": "done",
    "open the device of AMD's GPUs": "done",
    "start a program": "done",
    "start a program from memory": "done",
    "change a mode": "EPERM",
}

KFD = RESOURCE_CHILD | {
    "read its offer": "EACCES",
    "list the directory of its offer": "EACCES",
    "write its history": "EACCES",
    "write its state": "EACCES",
    "serve in the plugin directory": "EACCES",
    "open the device of AMD's GPUs": "done",
}

PRE_START = dict.fromkeys(RESOURCE_CHILD, "done") | {
    "serve in the plugin directory": "done",
    "reach a TCP port": "EAFNOSUPPORT",
    "reach a UDP port": "EAFNOSUPPORT",
    "reach IPv6": "EAFNOSUPPORT",
    "send raw packets": "EAFNOSUPPORT",
    "make an x32 socket": "EAFNOSUPPORT",
    "listen on a TCP port": "EAFNOSUPPORT",
    "open a ring": "EPERM",
    "make a device": "EPERM",
    "change a mode": "EPERM",
}

REPORTER = RESOURCE_CHILD | {
    "read another's offer": "done",
    "list the offers": "done",
    "read another's state": "done",
    "read the configuration": "done",
    "write its history": "EACCES",
    "write its state": "EACCES",
    "serve in the plugin directory": "EACCES",
    "reach a TCP port": "done",
    "reach a UDP port": "done",
    "reach IPv6": "ECONNREFUSED",
    "listen on a TCP port": "EACCES",
}

DRA = REPORTER | {
    "serve in the directory of its driver": "done",
    "write a claim": "done",
    "write a CDI spec": "done",
}


@pytest.fixture
def node(directory):
    """A run directory with three resources, a kubelet directory with a kubelet and a pod, and what is beside them."""
    for key in (OWN, OTHER, "external-check", "amd-kfd", "ledger", "a"):
        for place in ("offers/device-plugin", "state"):
            path = spool.path_of(directory / "run" / place, key)
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            spool.write(path, spool_pb2.Resource(name=key.replace("_", "/")))
        (directory / "run/history" / f"resource:{key}").mkdir(parents=True)
    for made in ("cdi", "dev", "kubelet/pods", "kubelet/device-plugins", "kubelet/plugins_registry"):
        (directory / made).mkdir(parents=True)
    for driver in ("gpu.example.com", "csi"):
        (directory / "kubelet/plugins" / driver).mkdir(parents=True)
    state = spool_pb2.DraState(drivers=[spool_pb2.DraDriver(name="gpu.example.com")])
    for file in (spool.path_of(directory / "run/dra", "a"), directory / "run/dra/claims.pb"):
        file.parent.mkdir(parents=True, exist_ok=True)
        spool.write(file, state)
    for file in (
        "kubelet/plugins/csi/secret",
        "kubelet/plugins/csi/volume",
        "dev/kfd",
        "kubelet/pods/token",
        "kubelet/pods/volume",
        "cdi/gpu.json",
    ):
        (directory / file).write_text("as it was")
    return directory


def attacked(node, program):
    """The outcome of each attempt from within a child of that program, and its status as the kernel shows it."""
    lacking = _native.sandbox_missing()
    if lacking:
        not_tested(f"the kernel's Landlock lacks {', '.join(lacking)}")
    with (
        socket.socket(socket.AF_UNIX) as kubelet,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        kubelet.bind(str(node / "kubelet/device-plugins/kubelet.sock"))
        kubelet.listen()
        abstract.bind(f"\0devherd-{os.getpid()}")
        abstract.listen()
        names = {"ABSTRACT": f"@devherd-{os.getpid()}", "TCP_PORT": str(tcp.getsockname()[1])}
        command = [sys.executable, ATTACK, node, program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | names) as process:
            lines = []
            for line in process.stdout:
                if line == "waiting\n":
                    break
                lines.append(line)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            status = Path(f"/proc/{children[0]}/status").read_text() if children else ""
            process.kill()
    assert lines, "the child did not get as far as its main function"
    return json.loads(lines[-1]), dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


def test_a_compromised_resource_child_can_do_nothing_but_serve_its_resource(node):
    """No other resource's files, no device, no network, no program, no other process."""
    outcomes, status = attacked(node, "resource")

    assert outcomes == RESOURCE_CHILD
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)
    assert (node / "kubelet/pods/volume").exists()
    assert (
        spool.read(spool.path_of(node / "run/offers/device-plugin", OTHER), spool_pb2.Resource).name
        == "example.com/other"
    )


def test_a_compromised_exporter_can_read_the_run_directory_and_write_nothing_in_it(node):
    """It listens, and cannot call out by TCP."""
    outcomes, status = attacked(node, "exporter")

    assert outcomes == EXPORTER
    assert status["NoNewPrivs"] == "1"


def test_a_compromised_scanner_can_write_what_it_publishes_and_reach_no_network(node):
    """It sees the whole host and changes nothing there."""
    outcomes, status = attacked(node, "scanner")

    assert outcomes == SCANNER
    assert status["NoNewPrivs"] == "1"


def test_an_operators_program_can_read_the_host_and_use_its_devices_and_change_nothing(node):
    """A monitor needs no more; what it says goes through the process that listens to it."""
    outcomes, status = attacked(node, "source:external-check")

    assert outcomes == EXTERNAL
    assert status["NoNewPrivs"] == "1"


def test_who_listens_to_amds_driver_can_open_its_device_and_nothing_else(node):
    """Its descriptors are all it needs: no other device, no network, no program, no file but its findings."""
    outcomes, status = attacked(node, "source:amd-kfd")

    assert outcomes == KFD
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)


def test_who_examines_devices_before_a_start_has_no_network_and_makes_no_device(node):
    """Landlock would keep it from looking into processes: files are restricted by their owners and modes alone."""
    outcomes, status = attacked(node, "pre-start")
    subprocess.run(["umount", node / "run/state" / OWN], check=True)  # what a reset needs, CAP_SYS_ADMIN, mounts, too

    assert outcomes == PRE_START
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_who_keeps_the_ledger_starts_no_program_and_has_no_network(node):
    """It may look into processes; what it may write is limited by owners and modes alone."""
    outcomes, status = attacked(node, "source:ledger")

    kept = {
        "start a program": "EPERM",
        "start a program from memory": "EPERM",
        "mount": "EPERM",
        "talk netlink": "EAFNOSUPPORT",
    }
    assert outcomes == PRE_START | kept
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_who_tells_the_api_server_can_call_out_and_touch_nothing_of_the_host(node):
    """It alone may call out; it reads what there is to be told."""
    outcomes, status = attacked(node, "kubernetes")

    assert outcomes == REPORTER
    assert status["NoNewPrivs"] == "1"


def test_who_serves_claims_goes_into_no_other_plugins_directory(node):
    """Volumes of other plugins are there, with what is in them."""
    outcomes, status = attacked(node, "dra:a")

    assert outcomes == DRA
    assert status["NoNewPrivs"] == "1"
