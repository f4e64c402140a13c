"""The systemd unit: systemd itself reads it without a complaint, and finds it well shut in."""

import subprocess
from pathlib import Path

import pytest
from unshared import unshared

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "devherd.service"
PROGRAMS = ("opt/devherd/bin/devherd", "bin/mkdir")
TARGETS = ("sysinit", "basic", "shutdown", "local-fs", "multi-user")


@pytest.fixture
def host(tmp_path):
    """A root directory with the unit, the programs it names and the targets every unit needs."""
    for program in PROGRAMS:
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for target in TARGETS:
        (units / f"{target}.target").write_text("[Unit]\nDescription=a target\n")
    (units / UNIT.name).write_text(UNIT.read_text())
    return tmp_path


@pytest.fixture
def analyze(tool, host):
    """`analyze("verify")` runs systemd-analyze on the unit as it stands in the host's root directory."""
    program = tool("systemd-analyze")

    def run(verb, *options):
        return subprocess.run(
            [*unshared("/run"), program, verb, f"--root={host}", *options, UNIT.name],
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_systemd_reads_the_unit_without_a_complaint(analyze):
    """Every key, value and program of the unit is one that systemd knows and finds."""
    verified = analyze("verify", "--man=no", "--recursive-errors=yes")
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("RestartSec=", "RestratSec=", "Unknown key"),
        ("KillMode=mixed", "KillMode=mix", "Failed to parse kill mode"),
        ("/opt/devherd/bin/devherd run", "/opt/devherd/devherd run", "No such file"),
        ("@system-service", "@system-services", "system-services"),
    ],
)
def test_a_mistake_in_the_unit_would_be_found(analyze, host, right, wrong, complaint):
    """The check above is one that can fail."""
    unit = host / "etc" / "systemd" / "system" / UNIT.name
    assert right in unit.read_text()
    unit.write_text(unit.read_text().replace(right, wrong))
    assert complaint in analyze("verify", "--man=no").stderr


def test_the_kubelet_is_started_when_devherd_is_ready_and_not_before():
    """Started together, the kubelet refuses pods that it admits before devherd has registered, and never asks again."""
    lines = UNIT.read_text().splitlines()
    before = " ".join(line.removeprefix("Before=") for line in lines if line.startswith("Before=")).split()
    assert "Type=notify" in lines
    assert {"kubelet.service", "k3s.service", "rke2-agent.service", "k0sworker.service"} <= set(before)


def test_the_units_of_every_distribution_that_carries_a_kubelet_wait_for_devherd():
    """Defect: MicroShift's and Canonical's kubelets were started beside it, and could admit pods before.

    Names: packaging/systemd/microshift.service of openshift/microshift; the daemons `kubelet` of the snaps k8s
    (canonical/k8s-snap) and kubelet, which snapd calls snap.SNAP.DAEMON.service.
    """
    lines = UNIT.read_text().splitlines()
    before = " ".join(line.removeprefix("Before=") for line in lines if line.startswith("Before=")).split()
    assert {"microshift.service", "snap.k8s.kubelet.service", "snap.kubelet.daemon.service"} <= set(before)


def test_systemd_finds_little_exposed(analyze):
    """The score for what the service could do to the host, 0 to 10, stays at 3 or better (an open service has 9)."""
    scored = analyze("security", "--offline=true", "--threshold=30", "--no-pager")
    assert scored.returncode == 0, scored.stdout
