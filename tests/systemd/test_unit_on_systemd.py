"""The unit under a real systemd: what docs/install.md and docs/upgrade.md say is typed, in their order, and happens.

Each test goes on where the one before it ended: a machine is installed, runs, is upgraded, and is left.
"""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INSTALL, UPGRADE = DOCS / "install.md", DOCS / "upgrade.md"
RESOURCE, KUBELET = "nvidia.com/gpu", "--kubelet-dir=/var/lib/kubelet"
OFFLINE = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
"""The machine has no network."""
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


def shown(page, heading):
    """The first block of commands below a heading of a page."""
    text = page.read_text()
    return re.search(rf"^{re.escape(heading)}\n.*?^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def status(machine, devherd="devherd"):
    return json.loads(machine.run(devherd, "status", "--output=json"))


def scanner_pid(machine, devherd="devherd"):
    return next(child["pid"] for child in status(machine, devherd)["children"] if child["name"] == "scanner")


def main_pid(machine):
    return int(machine.run("systemctl", "show", "--property=MainPID", "--value", "devherd"))


def is_well(machine, devherd="devherd"):
    """All processes run, the resource is registered, and the kubelet may allocate every device."""
    try:
        seen = status(machine, devherd)
        machine.run(devherd, "sim", "kubelet", "wait", RESOURCE, "--allocatable=8", "--timeout=1s", KUBELET)
    except (ValueError, machine.Failure):
        return False
    well = all(child["state"] == "RUNNING" for child in seen["children"]) and not seen["silent"]
    return well and all(resource["registered"] for resource in seen["resources"])


def test_it_is_installed_from_the_page_and_starts_on_a_node_that_has_never_run_a_kubelet(machine):
    """Defect: without /run/cdi, which no boot makes, it ended in 226/NAMESPACE for ever."""
    machine.run("mkdir", "/etc/devherd")
    assert "kubelet" not in machine.run("ls", "/var/lib").split()
    machine.sh(f"cd /tmp && cp /wheels/devherd-*.whl . && {OFFLINE}\n{shown(INSTALL, '## systemd')}")

    assert machine.run("systemctl", "is-active", "devherd") == "active"
    assert machine.run("systemctl", "show", "--property=NRestarts", "--value", "devherd") == "0"
    children = status(machine)["children"]
    assert {child["name"]: child["state"] for child in children} == {"scanner": "RUNNING", "exporter": "RUNNING"}


def test_it_confines_its_processes_under_this_systemd(machine):
    """Defect: the unit's filter refused seccomp and Landlock, and every process ended at once while it was `active`."""
    log = machine.run("journalctl", "--unit=devherd", "--output=cat", "--no-pager")
    assert "not confined" not in log
    assert "Operation not permitted" not in log
    scanner = scanner_pid(machine)
    assert (
        re.search(r"^Seccomp_filters:\s+(\d+)$", machine.run("cat", f"/proc/{scanner}/status"), re.MULTILINE)[1] > "2"
    )


def test_it_is_ready_before_the_kubelet_starts_and_registers_with_it(machine):
    """Also after a boot: the machine is switched off and on."""
    machine.sh("""
        devherd sim node /srv/node --spec nvidia-8 >/dev/null
        echo 'host_root: /srv/node' >/etc/devherd/config.yaml
        cat >/etc/systemd/system/kubelet.service <<END
        [Unit]
        Description=a kubelet
        [Service]
        Type=exec
        ExecStart=/usr/local/bin/devherd sim kubelet --kubelet-dir /var/lib/kubelet
        [Install]
        WantedBy=multi-user.target
END
        systemctl enable --quiet kubelet
    """)
    machine.power_off()
    machine.boot()
    machine.until(lambda: is_well(machine), "the resource is registered")

    monotonic = "--property=ActiveEnterTimestampMonotonic"
    ready, started = (
        int(machine.run("systemctl", "show", monotonic, "--value", unit)) for unit in ("devherd", "kubelet")
    )
    assert 0 < ready <= started


def test_a_reload_takes_the_new_file_or_fails_with_the_reason(machine):
    """`systemctl reload` waits for it."""
    machine.sh("echo 'log_levl: debug' >>/etc/devherd/config.yaml")
    with pytest.raises(machine.Failure):
        machine.run("systemctl", "reload", "devherd")
    errors = machine.run("journalctl", "--unit=devherd", "--output=cat", "--no-pager", "--priority=err")
    assert "log_levl" in errors, "defect: every line had the priority of `info`"
    assert not re.search(r"\d{4}-\d\d-\d\dT", errors), "the journal has the time"
    machine.sh("sed -i /log_levl/d /etc/devherd/config.yaml; systemctl reload devherd")
    assert is_well(machine)


def test_a_supervisor_that_is_killed_is_started_again(machine):
    """With all of its processes; none of the old ones is left."""
    old = main_pid(machine)
    machine.run("kill", "-KILL", str(old))
    machine.until(lambda: main_pid(machine) not in (0, old) and is_well(machine), "another serves")
    assert machine.run("pgrep", "--count", "--full", "^devherd: scanner") == "1"


def test_a_supervisor_that_hangs_is_noticed_and_replaced_by_the_watchdog(machine):
    """Defect: nothing looked at it; a child that died was never replaced, and everything was shown as well."""
    old = main_pid(machine)
    machine.run("kill", "-STOP", str(old))
    machine.until(lambda: main_pid(machine) not in (0, old) and is_well(machine), "another serves")
    assert machine.run("systemctl", "show", "--property=NRestarts", "--value", "devherd") == "2"
    assert "watchdog" in machine.run("journalctl", "--unit=devherd", "--output=cat", "--no-pager").lower()


def test_a_child_that_runs_out_of_memory_costs_the_others_nothing(machine):
    """The whole service would be stopped otherwise: `OOMPolicy=stop` is its default."""
    assert machine.run("systemctl", "show", "--property=OOMPolicy", "--value", "devherd") == "continue"


def test_a_kubelets_directory_that_is_made_again_is_found(machine):
    """As k3s and RKE2 make it, installed a second time. Defect: the unit saw the old one until it was restarted."""
    machine.sh("systemctl stop kubelet; rm -rf /var/lib/kubelet; systemctl start kubelet")
    machine.until(lambda: is_well(machine), "the resource is registered in the new directory")


def test_labels_are_written_to_the_file_of_node_feature_discovery(machine):
    """Defect: the unit's sandbox refused the directory that the page recommends."""
    machine.sh(f"""
        mkdir -p {FEATURES}
        cp /etc/devherd/config.yaml /etc/devherd/before.yaml
        echo 'node_labels: {{write: feature_file}}' >/etc/devherd/config.yaml
        systemctl restart devherd
    """)
    machine.until(lambda: machine.run("ls", FEATURES) == "devherd", "the file is there")
    machine.sh("mv /etc/devherd/before.yaml /etc/devherd/config.yaml; systemctl restart devherd")


def test_the_doctor_names_what_the_unit_may_not_write_with_the_cure(machine):
    """Defect: it looked with its own mounts, in which everything can be written, as the page says of it."""
    drop_in, said = "/etc/systemd/system/devherd.service.d", "/srv/state is read-only for the instance that runs"
    machine.sh("""
        mkdir -p /srv/state
        cp /etc/devherd/config.yaml /etc/devherd/before.yaml
        echo 'state_dir: /srv/state' >>/etc/devherd/config.yaml
        systemctl restart devherd
    """)
    machine.until(lambda: is_well(machine), "all is well")
    report = machine.run("devherd", "doctor", check=False)
    [cure] = re.findall(rf"{said} — `(\S+)` in `systemctl edit devherd`", report)
    machine.sh(f"""
        mkdir -p {drop_in}
        printf '[Service]\\n{cure}\\n' >{drop_in}/override.conf
        systemctl daemon-reload
        systemctl restart devherd
    """)
    machine.until(lambda: is_well(machine), "all is well")
    assert said not in machine.run("devherd", "doctor", check=False)
    machine.sh("mv /etc/devherd/before.yaml /etc/devherd/config.yaml; systemctl restart devherd")


def test_an_upgrade_on_disk_does_not_reach_the_running_version_and_can_be_taken_back(machine):
    """Defect: a process that was started again took its code from the new version, and ended in an ImportError."""
    machine.until(lambda: is_well(machine), "all is well")
    prepare, restart, rest = shown(UPGRADE, "### systemd").partition("systemctl restart devherd\n")
    assert (restart, rest) == ("systemctl restart devherd\n", "")
    machine.sh(
        f"cd /tmp && cp /wheels/devherd-*.whl . && {OFFLINE}\n{prepare}".replace(
            "devherd-0.2.0-*.whl", "devherd-0.1.0-*.whl"
        )
    )
    machine.sh(
        "echo 'raise ImportError' >>$(echo /opt/devherd-0.2.0/lib/python3*/site-packages/devherd/scanner/loop.py)"
    )

    old = "/opt/devherd-0.1.0/bin/devherd"
    scanner = scanner_pid(machine, old)
    machine.run(old, "ctl", "restart", "scanner")
    machine.until(lambda: is_well(machine, old), "a new scanner of the old version runs")
    assert scanner_pid(machine, old) != scanner

    machine.sh("ln -sfnT devherd-0.1.0 /opt/devherd; systemctl restart devherd")
    machine.until(lambda: is_well(machine), "the old version serves")


def test_what_the_page_says_removes_all_of_it(machine):
    """Defect: a unit that was only stopped was back after the next boot."""
    machine.sh(shown(INSTALL, "### Uninstall from systemd"))
    places = ("/etc", "/opt", "/usr/local", "/run/devherd", "/var/lib", "/var/run/cdi")
    left = machine.run("find", *places, "-name", "*devherd*", check=False)
    assert [line for line in left.splitlines() if not line.startswith("find: ")] == []
    assert machine.run("systemctl", "is-enabled", "devherd", check=False).startswith("Failed to get unit file state")
