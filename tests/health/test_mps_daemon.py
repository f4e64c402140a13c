"""Shares of GPUs through NVIDIA's MPS control daemon: they are healthy while it lives."""

import errno

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health import host
from devherd.scanner.observer import Observer
from devherd_sim.node.nvidia_faults import MpsDaemon
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

MPS_ROOT = "/run/nvidia/mps"
SHARED = "nvidia.com/gpu.shared"


def sharing(tmp_path, match) -> Observer:
    node = SimulatedNode.create(tmp_path / "node", preset("nvidia-8"))
    rule = {"match": match, "sharing": {"strategy": "mps", "replicas": 2, "rename": SHARED}}
    config = {
        "host_root": node.root,
        "vendors": {"nvidia": {"mps_root": MPS_ROOT}},
        "resources": [rule],
        "health": {"recover_after": 2},
    }
    return Observer(resolve(Config.model_validate(config)))


@pytest.fixture
def observer(tmp_path):
    """A host with eight GPUs, the first shared by MPS; two good looks make well."""
    return sharing(tmp_path, {"index": "0"})


@pytest.fixture
def daemon(tmp_path):
    """Of the shared resource; it does not live yet."""
    made = MpsDaemon(tmp_path / "node", MPS_ROOT, SHARED)
    yield made
    made.kill()


def reasons(observer: Observer) -> dict[str, set[tuple[str, ...]]]:
    """By resource: what its devices are Unhealthy for."""
    return {
        one.name: {tuple(device.reasons) for device in one.devices}
        for one in observer.offering.judged(observer.policy.verdicts()).offers
    }


def test_shares_without_a_control_daemon_are_unhealthy_m4(observer):
    """Programs in such containers fail at their first call of CUDA; whole GPUs are not concerned."""
    observer.scan(0.0)

    assert reasons(observer) == {SHARED: {("mps-daemon",)}, "nvidia.com/gpu": {()}}
    [(_, [held])] = observer.policy.all_held()
    assert held.finding.file == f"{MPS_ROOT}/{SHARED}/pipe/control"
    assert held.finding.value == "absent"


def test_shares_follow_the_life_of_their_control_daemon(observer, daemon):
    """It dies and comes back without devherd's doing; its sockets' files outlive it."""
    daemon.start()
    observer.scan(0.0)
    observer.poll(periodic=True)
    alive = reasons(observer)

    daemon.kill()
    observer.poll(periodic=True)
    dead = reasons(observer)

    daemon.start()
    observer.poll(periodic=True)
    at_first = reasons(observer)
    observer.poll(periodic=True)

    assert alive[SHARED] == {()}
    assert dead[SHARED] == {("mps-daemon",)}
    assert at_first[SHARED] == {("mps-daemon",)}
    assert reasons(observer)[SHARED] == {()}


def test_a_daemon_that_shares_most_gpus_of_a_node_is_believed_to_be_dead_at_once(tmp_path, daemon):
    """It is one program: that all its GPUs have the same trouble makes nobody doubt."""
    observer = sharing(tmp_path, {"vendor": "nvidia"})
    daemon.start()
    observer.scan(0.0)
    observer.poll(periodic=True)

    daemon.kill()
    observer.poll(periodic=True)

    assert reasons(observer) == {SHARED: {("mps-daemon",)}}


def test_a_host_that_shares_nothing_by_mps_needs_no_daemon(tmp_path):
    """A root that is configured and not used is looked into by nobody."""
    node = SimulatedNode.create(tmp_path / "node", preset("nvidia-8"))
    config = {"host_root": node.root, "vendors": {"nvidia": {"mps_root": MPS_ROOT}}}
    observer = Observer(resolve(Config.model_validate(config)))

    observer.scan(0.0)

    assert reasons(observer) == {"nvidia.com/gpu": {()}}


def test_the_daemon_of_another_resource_is_none(observer, tmp_path):
    """Each resource has its own: a container is given the pipe directory of its resource."""
    with MpsDaemon(tmp_path / "node", MPS_ROOT, "nvidia.com/gpu"):
        observer.scan(0.0)

        assert reasons(observer)[SHARED] == {("mps-daemon",)}


def test_a_file_in_the_place_of_the_socket_is_no_daemon(tmp_path):
    """Whatever is left there: nobody listens."""
    pipe = tmp_path / "run/nvidia/mps" / SHARED / "pipe"
    pipe.mkdir(parents=True)
    (pipe / "control").touch()

    assert host.look_at_mps(tmp_path, MPS_ROOT, SHARED).value == "nobody listens"


def test_the_daemon_does_not_hear_of_the_look(tmp_path, daemon):
    """A client that says nothing would be in its log each second."""
    daemon.start()

    assert host.look_at_mps(tmp_path / "node", MPS_ROOT, SHARED) is None

    [control, _] = daemon._sockets
    control.setblocking(False)
    with pytest.raises(BlockingIOError):
        control.accept()


def test_a_daemon_that_may_not_be_looked_at_makes_nothing_unhealthy(observer, monkeypatch):
    """Not to know is not to be sick: it is a problem that names the file."""
    monkeypatch.setattr(host, "_connect", lambda _: errno.EACCES)

    observer.scan(0.0)

    assert reasons(observer)[SHARED] == {()}
    [problem] = observer.problems
    assert problem.error == f"{MPS_ROOT}/{SHARED}/pipe/control: Permission denied"


def test_a_daemon_that_may_not_be_looked_at_any_more_stays_dead(observer, monkeypatch):
    """Looks that were not made are no good looks, however many."""
    observer.scan(0.0)
    monkeypatch.setattr(host, "_connect", lambda _: errno.EACCES)

    for _ in range(5):
        observer.poll(periodic=True)

    assert reasons(observer)[SHARED] == {("mps-daemon",)}
