"""What device events of the kernel do to devices: on a simulated node, from the event's variables to the verdict."""

from pathlib import Path

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.held import Now, Seen
from devherd.health.policy import FINE, Verdict
from devherd.scanner.host_events import HostChanges
from devherd.scanner.observer import Observer
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec


class Node:
    """Two GPUs below a switch and two below another, and what is held against each after events."""

    def __init__(self, directory: Path) -> None:
        SimulatedNode.create(directory, NodeSpec(nvidia=NvidiaSpec(gpus=4, gpus_a_switch=2)))
        self.observer = Observer(resolve(Config(host_root=directory)))
        self.observer.scan(0.0)
        self.observer.poll(periodic=True)
        by_function = {entry.device.functions[0].path: key for key, entry in self.observer.inventory.entries.items()}
        self.functions = [path.removeprefix("/sys") for path in sorted(by_function)]
        self._keys = [by_function[path] for path in sorted(by_function)]
        assert self.verdicts() == [FINE] * 4

    def after(self, path: str, action: str = "change", **variables: str) -> list[Verdict]:
        """The verdicts after an event."""
        return self.after_all(self.event(path, action, **variables))

    def after_all(self, *events: dict[str, str]) -> list[Verdict]:
        """The verdicts after events that are heard together."""
        self.observer.poll(periodic=False, changes=HostChanges(list(events)))
        return self.verdicts()

    def event(self, path: str, action: str = "change", **variables: str) -> dict[str, str]:
        return {"ACTION": action, "DEVPATH": path, "SUBSYSTEM": "pci", "SEQNUM": "7"} | variables

    def verdicts(self) -> list[Verdict]:
        return [self.observer.policy.verdict(key) for key in self._keys]

    def later(self, seconds: float) -> None:
        """So long after that nothing was heard."""
        moment = self.observer.now()
        later = Now(moment.wall + seconds, moment.monotonic + seconds, moment.boot_id)
        self.observer.policy.observe(Seen(), later)

    def set_fatal_errors(self, count: int) -> None:
        """Of the first GPU."""
        file = self.observer.config.host_root / f"sys{self.functions[0]}/aer_dev_fatal"
        file.write_text(f"TOTAL_ERR_FATAL {count}\n")


IN_RECOVERY, IS_WEDGED = Verdict(("pci-recovery",)), Verdict(("wedged",))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_a_function_in_recovery_is_unhealthy_until_it_has_succeeded(node: Node) -> None:
    """It answers nobody meanwhile, and no other card is concerned."""
    first, *_ = node.functions
    assert node.after(first, ERROR_EVENT="BEGIN_RECOVERY", DEVICE_ONLINE="0") == [IN_RECOVERY, FINE, FINE, FINE]
    assert node.after(first, ERROR_EVENT="SUCCESSFUL_RECOVERY", DEVICE_ONLINE="1") == [FINE] * 4


def test_a_recovery_that_begins_and_ends_between_two_looks_is_over(node: Node) -> None:
    """It takes milliseconds, and its events are heard together: the card was Unhealthy for ever."""
    first, second, *_ = node.functions
    begun = [node.event(path, ERROR_EVENT="BEGIN_RECOVERY") for path in (first, second)]
    done = [node.event(path, ERROR_EVENT="SUCCESSFUL_RECOVERY") for path in (first, second)]
    assert node.after_all(*begun, *done) == [FINE] * 4
    assert node.after_all(node.event(first, ERROR_EVENT="FAILED_RECOVERY"), node.event(first, "bind")) == [FINE] * 4
    assert node.after_all(node.event(first, "bind"), node.event(first, ERROR_EVENT="FAILED_RECOVERY")) == [
        IN_RECOVERY,
        FINE,
        FINE,
        FINE,
    ]


def test_a_recovery_that_fails_at_a_port_has_failed_for_all_below_it(node: Node) -> None:
    """Of functions whose driver takes no part, as NVIDIA's, there is no event of their own."""
    port = str(Path(node.functions[0]).parent.parent)
    below = [IN_RECOVERY if path.startswith(f"{port}/") else FINE for path in node.functions]
    assert below == [IN_RECOVERY, IN_RECOVERY, FINE, FINE]
    assert node.after(port, ERROR_EVENT="FAILED_RECOVERY", DEVICE_ONLINE="0") == below


@pytest.mark.parametrize("action", ["bind", "add"])
def test_what_failed_is_over_when_a_driver_is_bound_anew_or_the_function_comes_again(node: Node, action: str) -> None:
    """Of that function alone, and not by an event of something on it."""
    first, second, *_ = node.functions
    for function in (first, second):
        node.after(function, ERROR_EVENT="FAILED_RECOVERY")
    assert node.after(f"{first}/drm/card0", action, SUBSYSTEM="drm")[:2] == [IN_RECOVERY] * 2
    assert node.after(first, action)[:2] == [FINE, IN_RECOVERY]


def test_a_recovery_that_succeeds_takes_back_the_fatal_error_before_it(node: Node) -> None:
    """Otherwise it would be held for ten minutes; one that comes after it is."""
    first, *_ = node.functions
    node.set_fatal_errors(0)
    node.observer.poll(periodic=False)
    node.set_fatal_errors(1)
    counted = Verdict(("pci-aer", "pci-recovery"))
    assert node.after(first, ERROR_EVENT="BEGIN_RECOVERY")[0] == counted
    assert node.after(first, ERROR_EVENT="SUCCESSFUL_RECOVERY")[0] == FINE
    node.set_fatal_errors(2)
    node.observer.poll(periodic=False)
    assert node.verdicts()[0] == Verdict(("pci-aer",))


def test_a_wedged_gpu_is_unhealthy_until_it_is_bound_anew_and_one_that_was_reset_is_a_warning(node: Node) -> None:
    """`WEDGED=none` says that nothing has to be done."""
    first, second, *_ = node.functions
    card = {"SUBSYSTEM": "drm", "DEVNAME": "dri/card0"}
    assert node.after(f"{second}/drm/card1", WEDGED="none", **card)[:2] == [FINE, Verdict((), ("wedged",))]
    assert node.after(f"{first}/drm/card0", WEDGED="rebind,bus-reset", **card)[0] == IS_WEDGED
    assert node.after(first, "unbind")[0] == IS_WEDGED
    assert node.after(first, "bind")[0] == FINE


def test_a_gpu_of_i915_that_hangs_is_unhealthy_unless_a_reset_helps_soon(node: Node) -> None:
    """It sends no WEDGED before Linux 6.15. What a reset has ended within five seconds was nothing."""
    first, second, *_ = node.functions
    cards = [(f"{path}/drm/card{number}", {"SUBSYSTEM": "drm"}) for number, path in enumerate((first, second))]
    for card, drm in cards:
        assert node.after(card, ERROR="1", **drm) == [FINE] * 4
        node.after(card, RESET="1", **drm)
    node.after(cards[1][0], ERROR="0", **cards[1][1])
    node.later(5.0)
    assert node.verdicts() == [IS_WEDGED, FINE, FINE, FINE]
    assert node.after(cards[0][0], ERROR="0", **cards[0][1]) == [FINE] * 4


def test_an_event_that_somebody_asked_for_says_nothing(node: Node) -> None:
    """Whoever may write to a `uevent` file can make one, with variables of his own."""
    first, *_ = node.functions
    asked = {"SYNTH_UUID": "0", "SYNTH_ARG_WEDGED": "rebind"}
    assert node.after(first, ERROR_EVENT="FAILED_RECOVERY", **asked) == [FINE] * 4
    assert node.after(f"{first}/drm/card0", SUBSYSTEM="drm", WEDGED="rebind", **asked) == [FINE] * 4
    node.after(first, ERROR_EVENT="FAILED_RECOVERY")
    assert node.after(first, "bind", **asked)[0] == IN_RECOVERY
