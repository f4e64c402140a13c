"""What NVML says, as findings: each reason, what ends an Xid, and what is gone on with."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_readings import FINE, NOTHING

from devherd.health.held import Now
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS
from devherd.sources.nvml.findings import Health, Unlisted, is_blind, states_of, troubles

GPU = "0000:3b:00.0"
OTHER = "0000:5e:00.0"


def reading(gpu=GPU, **values):
    """A look at a well GPU, but for this."""
    return {"pci_address": gpu, **FINE, **values}


def refused(code, *, has_node=True, gpu=GPU):
    """A look at a GPU that NVML does not open."""
    refusal = {"function": "nvmlDeviceGetHandleByPciBusId_v2", "code": code, "meaning": f"error {code}"}
    failures = [] if code == 3 else [refusal]  # as rust/src/nvml/watch.rs has it
    return {"pci_address": gpu, **NOTHING, "refusal": refusal, "failures": failures, "has_node": has_node}


def failing(code, function="nvmlDeviceGetFieldValues", **values):
    """A look at a GPU whose calls return this."""
    failure = {"function": function, "code": code, "meaning": f"error {code}"}
    return {"pci_address": GPU, **NOTHING, "failures": [failure], **values}


def event(kind, data=0, gpu=GPU, gi=None, ci=None):
    """An event."""
    return {"pci_address": gpu, "kind": kind, "data": data, "gpu_instance": gi, "compute_instance": ci}


def found(health):
    """Reasons and values by GPU, with the counts of events."""
    findings = health.message(Now(5000.0, 100.0, "boot")).findings
    return [(one.at.pci_address, one.reason, one.value, one.count) for one in findings]


def stated(health):
    """What is stated, with the moment."""
    evidence = health.message(Now(5000.0, 100.0, "boot")).evidence
    return [(one.at.pci_address, one.evidence, one.monotonic_seconds) for one in evidence]


def ends(health):
    """The same, but for what several good looks show."""
    return [one for one in stated(health) if one[1] != "started"]


@pytest.mark.parametrize(
    ("values", "reason", "value"),
    [
        ({"recovery_action": 1}, "recovery-action", "1"),
        ({"recovery_action": 3}, "recovery-action", "3"),
        ({"recovery_action": 99}, "recovery-action", "99"),
        ({"remap_failed": True}, "row-remap-failed", "1"),
        ({"remap_pending": True}, "row-remap-pending", "1"),
        ({"retirement_pending": True}, "retirement-pending", "1"),
        ({"retired_pages": 63}, "retired-pages", "63"),
        ({"uncorrected_errors": 2}, "ecc-contained", "2"),
        ({"uncorrected_errors": 2, "recovery_action": None}, "ecc", "2"),
        ({"fabric": {"state": 1, "status": 0, "summary": 0}}, "fabric", "not started"),
        ({"fabric": {"state": 2, "status": 27, "summary": 0}}, "fabric", "in progress"),
        ({"fabric": {"state": 3, "status": 999, "summary": 0}}, "fabric", "failed"),
        ({"fabric": {"state": 3, "status": 0, "summary": 2}}, "fabric", "unhealthy"),
        ({"fabric": {"state": 3, "status": 0, "summary": 3}}, "fabric", "limited capacity"),
        ({"fabric": {"state": 2, "status": 0, "summary": 0}, "mig_mode": True}, "fabric", "in MIG mode"),
        ({"clock_reasons": 0x41}, "temperature", "0x40"),
        ({"clock_reasons": 0x80}, "power-brake", "0x80"),
        ({"sram_threshold_exceeded": True}, "sram-threshold", "1"),
        ({"repair_pending": True}, "repair-pending", "1"),
        ({"unrepairable_memory": True}, "unrepairable-memory", "1"),
    ],
)
def test_each_thing_that_is_the_matter_has_a_reason_that_is_registered(values, reason, value):
    """And no other."""
    (finding,) = states_of(reading(**values))
    assert (finding.reason, finding.value, finding.at.pci_address) == (reason, value, GPU)
    assert ("nvml", reason) in MEANINGS
    assert 0 < len(finding.detail) <= 200


@pytest.mark.parametrize(
    ("code", "reason"),
    [(8, "insufficient-power"), (11, "interrupts"), (14, "firmware"), (15, "gpu-lost"), (16, "needs-reset")],
)
def test_results_that_are_of_the_gpu_are_findings(code, reason):
    """Each once, however many calls return it."""
    looked = failing(code)
    looked["failures"] *= 3
    assert [finding.reason for finding in states_of(looked)] == [reason]
    assert ("nvml", reason) in MEANINGS
    assert (is_blind(looked), troubles(looked)) == (False, "")


@pytest.mark.parametrize("code", [1, 3, 4, 9, 13, 17, 18, 27, 999])
def test_every_other_result_is_no_finding(code):
    """It is the trouble of whoever asks."""
    looked = failing(code)
    assert list(states_of(looked)) == []
    assert (is_blind(looked), troubles(looked)) == (True, f"nvmlDeviceGetFieldValues: error {code}")


@pytest.mark.parametrize("code", [2, 6, 7, 9, 10, 12, 17, 27, 999])
def test_a_gpu_that_nvml_refuses_twice_while_it_opens_others_is_lost(code):
    """Defect: what nvidia-smi says of dead cards, "Unknown Error", left the GPU Healthy without a warning."""
    health = Health()
    health.take_readings([refused(code), reading(OTHER)], 10.0)
    assert (found(health), health.is_unsure, health.apart) == ([], True, {GPU})
    health.take_readings([refused(code), reading(OTHER)], 14.9)
    assert (found(health), health.is_unsure) == ([], True)
    health.take_readings([refused(code), reading(OTHER)], 15.0)
    assert (found(health), health.is_unsure) == ([(GPU, "gpu-lost", f"error {code}", 0)], False)
    health.take_readings([reading(), reading(OTHER)], 45.0)
    assert (found(health), health.apart) == ([], frozenset())


def test_gpus_that_nvml_refuses_all_alike_are_the_sources_trouble():
    """As when the driver is unloaded; what stands stays, and none of them waits for another look."""
    health = Health()
    health.take_readings([reading(remap_pending=True), reading(OTHER)], 5.0)
    for moment in (10.0, 15.0, 45.0):
        health.take_readings([refused(999), refused(999, gpu=OTHER)], moment)
        assert (found(health), health.is_unsure) == ([(GPU, "row-remap-pending", "1", 0)], False)
    assert is_blind(refused(999))
    assert troubles(refused(999)) == "nvmlDeviceGetHandleByPciBusId_v2: error 999"


def unlisted(error, *, gpu=GPU, code=6, listed=0, driver_lists=1, has_node=True):
    """A look at a GPU that NVML refuses with all others, while it lists fewer than the driver."""
    told = Unlisted(listed, driver_lists, "/host/dev/nvidia0", error)
    return refused(code, gpu=gpu, has_node=has_node) | {"unlisted": told}


@pytest.mark.parametrize("code", [4, 6, 999])
def test_a_gpu_that_the_driver_cannot_start_is_lost_though_nvml_opens_no_other(code):
    """Defect: NVML answered that there is no GPU, and the only one of the node was offered.

    awslabs/amazon-eks-ami issue 2768: a Blackwell GPU under the proprietary module, `No devices were found`. After two
    looks, until NVML opens it.
    """
    health = Health()
    health.take_readings([unlisted(errno.EIO, code=code)], 10.0)
    assert (found(health), health.is_unsure) == ([], True)
    health.take_readings([unlisted(errno.EIO, code=code)], 15.0)
    assert found(health) == [(GPU, "gpu-lost", "Input/output error", 0)]
    (lost,) = health.message(Now(5000.0, 100.0, "boot")).findings
    assert (lost.file, lost.detail) == (
        "/dev/nvidia0",
        "NVML lists 0 of 1 GPUs, and the driver cannot start this one; look for NVRM in the kernel log",
    )
    health.take_readings([reading()], 45.0)
    assert (found(health), health.apart) == ([], frozenset())


def test_all_gpus_of_a_node_that_the_driver_cannot_start_are_lost():
    """By one cause, such as a missing firmware; one that starts again is well at once."""
    health = Health()
    for moment in (10.0, 15.0):
        both = [unlisted(errno.EIO, driver_lists=2), unlisted(errno.EIO, gpu=OTHER, driver_lists=2)]
        health.take_readings(both, moment)
    assert [gpu for gpu, *_ in found(health)] == [GPU, OTHER]
    health.take_readings([reading(), refused(6, gpu=OTHER)], 45.0)
    assert [gpu for gpu, *_ in found(health)] == [OTHER]


@given(st.lists(st.sampled_from(["opened", "cannot start", "may not open", "nvml fails"]), max_size=12))
def test_a_gpu_is_lost_after_two_looks_in_which_it_could_not_be_started_and_never_once_nvml_opens_it(looks):
    """Whatever else NVML answered in between."""
    health, failed_starts = Health(), 0
    for number, look in enumerate(looks):
        answer = {
            "opened": reading(),
            "cannot start": unlisted(errno.EIO),
            "may not open": unlisted(errno.EPERM),
            "nvml fails": refused(999),
        }[look]
        health.take_readings([answer], 5.0 * number)
        failed_starts = 0 if look == "opened" else failed_starts + (look == "cannot start")
        assert [reason for _, reason, *_ in found(health)] == ["gpu-lost"] * (failed_starts >= 2)


@pytest.mark.parametrize("error", [0, None, errno.EPERM, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.EBUSY])
def test_a_gpu_whose_node_says_nothing_about_it_stays_as_it_was_and_the_source_says_how_many_nvml_lists(error):
    """The node is not in the container, may not be opened, opens, or did not come back."""
    health = Health()
    health.take_readings([reading(remap_pending=True)], 5.0)
    for moment in (10.0, 15.0, 45.0):
        health.take_readings([unlisted(error)], moment)
        assert (found(health), health.is_unsure) == ([(GPU, "row-remap-pending", "1", 0)], False)
    assert is_blind(unlisted(error))
    assert troubles(unlisted(error)).startswith("NVML lists 0 of 1 GPUs: nvmlDeviceGetHandleByPciBusId_v2: error 6")
    assert troubles(unlisted(errno.EPERM)).endswith("/host/dev/nvidia0: Operation not permitted")


def test_three_looks_at_a_gpu_that_nvml_opens_show_that_the_driver_starts_it():
    """Since the first of them; a refusal in between, or a GPU that is lost, begins again."""
    health = Health()

    def started():
        return [moment for gpu, evidence, moment in stated(health) if (gpu, evidence) == (GPU, "started")]

    health.take_readings([reading(), reading(OTHER)], 10.0)
    health.take_readings([reading(), reading(OTHER)], 40.0)
    assert started() == []
    health.take_readings([refused(999), reading(OTHER)], 70.0)
    for moment in (100.0, 130.0):
        health.take_readings([reading(), reading(OTHER)], moment)
    health.take_readings([failing(15), reading(OTHER)], 160.0)
    for moment in (190.0, 220.0):
        health.take_readings([reading(), reading(OTHER)], moment)
        assert started() == []
    health.take_readings([reading(), reading(OTHER)], 250.0)
    assert started() == [190.0]
    health.take_readings([reading(), reading(OTHER)], 280.0)
    assert started() == [220.0]


@pytest.mark.parametrize(("code", "has_node"), [(3, True), (4, True), (6, False), (999, False)])
def test_a_gpu_that_is_refused_for_a_reason_of_the_caller_is_not_examined_and_no_more(code, has_node):
    """Not supported, no permission, or its node is not in the container: a warning, and what stood stays."""
    health = Health()
    health.take_readings([reading(remap_pending=True), reading(OTHER)], 5.0)
    for moment in (10.0, 15.0, 45.0):
        health.take_readings([refused(code, has_node=has_node), reading(OTHER)], moment)
        assert found(health) == [(GPU, "row-remap-pending", "1", 0), (GPU, "not-examined", "", 0)]
        assert not health.is_unsure
    assert MEANINGS["nvml", "not-examined"].action == "warn"
    assert is_blind(refused(code))
    assert troubles(refused(code)) != ""
    health.take_readings([reading(), reading(OTHER)], 75.0)
    assert (found(health), [evidence for _, evidence, _ in ends(health)]) == ([], ["recovery-unasked"] * 2)


def test_a_refused_gpu_that_answers_again_has_been_started_again():
    """The reset came after the last refusal: an Xid from before that is over, a later one is not."""
    health = Health()
    health.take_readings([refused(999), reading(OTHER)], 10.0)
    health.take_readings([reading(), reading(OTHER)], 15.0)
    assert (GPU, "restarted", 10.0) in ends(health)
    health.take_readings([refused(999), reading(OTHER)], 45.0)
    health.take_readings([refused(999), reading(OTHER)], 50.0)
    health.take_readings([reading(recovery_action=1), reading(OTHER)], 80.0)
    assert (GPU, "restarted", 10.0) in ends(health)
    assert (GPU, "restarted", 50.0) not in ends(health)


@pytest.mark.parametrize("counter", ["energy", "pcie_replays", "corrected_errors", "uncorrected_errors"])
def test_counters_that_begin_again_show_that_the_driver_has_started_the_gpu_again(counter):
    """After the look before, also by another process; a rise, and what could not be read, show nothing."""
    health = Health()
    for moment, number in ((10.0, 7), (40.0, 7), (70.0, None), (100.0, 9)):
        health.take_readings([reading(**{counter: number})], moment)
    assert (GPU, "recovery-unasked", 99.0) in ends(health)
    assert [evidence for _, evidence, _ in ends(health)] == ["recovery-unasked"]
    health = Health(health.message(Now(5000.0, 100.0, "boot")))
    health.take_readings([reading(**{counter: 8})], 130.0)
    assert (GPU, "restarted", 100.0) in ends(health)


@pytest.mark.parametrize("is_persistent", [False, None])
def test_counters_of_a_gpu_that_the_driver_stops_when_nobody_has_it_open_show_no_reset(is_persistent):
    """Without persistence mode they begin again whenever the last process has closed it."""
    health = Health()
    health.take_readings([reading(is_persistent=is_persistent)], 10.0)
    health.take_readings([reading(is_persistent=is_persistent, energy=1)], 40.0)
    assert [evidence for _, evidence, _ in ends(health)] == ["recovery-unasked"]


@pytest.mark.parametrize("code", [46, 79, 119, 140, 167, 169])
def test_a_gpu_with_an_xid_that_a_reset_ends_is_let_go_of_until_then(code):
    """Nothing can reset it while it is open. Others stay open: the driver says whether they need a reset."""
    health = Health()
    health.take_readings([reading(), reading(OTHER)], 10.0)
    health.take_events([event(8, code), event(8, 48, gpu=OTHER), event(8, 13, gpu=OTHER)], 20.0)
    assert health.apart == {GPU}
    health.take_readings([reading(), reading(OTHER)], 21.0)
    assert health.apart == {GPU}
    health.take_readings([reading(energy=0), reading(OTHER)], 51.0)
    assert (GPU, "restarted", 21.0) in ends(health)
    assert health.apart == frozenset()


def test_a_gpu_whose_xid_an_operator_has_cleared_is_watched_again():
    """A clear of another device, of another reason or from before the Xid changes nothing."""
    health = Health()
    health.take_events([event(8, 119)], 20.0)

    def clear(card, reason, moment):
        at = health_pb2.Target(vendor="nvidia", card=card, device="GPU-1")
        end = health_pb2.Evidence(at=at, evidence="operator", reason=reason, monotonic_seconds=moment)
        health.take_clears(health_pb2.Findings(source="operator", evidence=[end]))
        return health.apart

    assert clear(OTHER, "xid", 30.0) == clear(GPU, "ecc", 30.0) == clear(GPU, "xid", 19.0) == {GPU}
    assert clear(GPU, "xid", 30.0) == frozenset()


def test_a_gpu_without_anything_to_say_is_well():
    """An old driver, or a GPU without these functions; power caps and slow clocks are no news."""
    assert list(states_of({"pci_address": GPU, **NOTHING})) == []
    assert list(states_of(reading())) == []


def test_what_could_not_be_looked_at_stays_as_it_was():
    """NVML fails for one GPU: its finding stays, that of the other goes."""
    health = Health()
    health.take_readings([reading(recovery_action=1), reading(OTHER, recovery_action=2)], 10.0)
    health.take_readings([failing(999), reading(OTHER)], 40.0)
    assert found(health) == [(GPU, "recovery-action", "1", 0)]


def test_a_row_that_could_not_be_remapped_is_not_forgotten_while_nvml_does_not_say():
    """NVML refuses to tell it while there are MIG devices."""
    health = Health()
    health.take_readings([reading(remap_failed=True)], 10.0)
    health.take_readings([reading(remap_failed=None)], 40.0)
    assert found(health) == [(GPU, "row-remap-failed", "1", 1)]


def test_xids_are_counted_by_code_and_instance():
    """Of all of a GPU, of a GPU instance, of a compute instance; other events are none."""
    health = Health()
    health.take_events([event(8, 31), event(8, 31), event(8, 79), event(0x8000), event(2)], 7.0)
    health.take_events([event(8, 31, gi=7, ci=0), event(8, 31, gi=7), event(8, 13, gpu=OTHER), event(8, 79)], 9.0)
    findings = health.message(Now(5000.0, 100.0, "boot")).findings
    counted = {
        (one.at.pci_address, one.at.gpu_instance, one.at.compute_instance, one.value): (
            one.count,
            one.last_monotonic_seconds,
        )
        for one in findings
    }
    assert counted == {
        (GPU, "", "", "31"): (2, 7.0),
        (GPU, "", "", "79"): (2, 9.0),
        (GPU, "7", "", "31"): (1, 9.0),
        (GPU, "7", "0", "31"): (1, 9.0),
        (OTHER, "", "", "13"): (1, 9.0),
    }
    assert len({one.file for one in findings if one.value == "31"}) == 3


def test_an_event_of_no_gpu_is_none():
    """NVML does not say which."""
    health = Health()
    health.take_events([event(8, 79, gpu=""), event(0x4000, gpu="")], 7.0)
    assert found(health) == []


def test_an_unavailable_gpu_is_lost_until_a_look_finds_it_well():
    """The driver says so by an event of its own."""
    health = Health()
    health.take_readings([reading()], 0.0)
    health.take_events([event(0x4000), event(0x4000)], 7.0)
    assert found(health) == [(GPU, "gpu-lost", "unavailable", 0)]
    assert health.apart == {GPU}
    health.take_readings([failing(15)], 8.0)
    assert found(health) == [(GPU, "gpu-lost", "NVML_ERROR_GPU_IS_LOST", 0)]
    health.take_readings([reading()], 38.0)
    assert (found(health), health.apart) == ([], frozenset())
    assert (GPU, "recovery-none", 37.0) in ends(health)


def test_a_look_right_after_an_event_says_nothing_about_it():
    """The driver takes a moment to say what it wants done: a look states what held a second before."""
    health = Health()
    health.take_readings([reading(), reading(OTHER, recovery_action=None)], 40.0)
    assert ends(health) == [(GPU, "recovery-unasked", 39.0)]


def test_a_lost_gpu_is_not_well_because_its_driver_wants_nothing_done():
    """The driver's variable is there without the GPU."""
    health = Health()
    health.take_readings([failing(15, "nvmlDeviceGetCurrentClocksEventReasons", recovery_action=0)], 40.0)
    assert (ends(health), health.apart) == ([], {GPU})


def test_a_recovery_that_was_wanted_and_is_no_more_is_told_once():
    """Later looks say only that nothing is wanted."""
    health = Health()
    health.take_readings([reading(recovery_action=4)], 10.0)
    assert (ends(health), health.apart) == ([], {GPU})
    health.take_readings([reading()], 40.0)
    health.take_readings([reading()], 70.0)
    assert ends(health) == [(GPU, "recovery-none", 39.0), (GPU, "recovery-unasked", 69.0)]


def test_another_process_goes_on_with_what_the_last_one_knew():
    """The next Xid is a new one, the recovery that was wanted is not forgotten, what was stated is still stated."""
    first = Health()
    first.take_events([event(8, 79), event(8, 79)], 5.0)
    first.take_readings([reading(OTHER)], 6.0)
    first.take_readings([reading(recovery_action=2)], 7.0)
    second = Health(first.message(Now(5000.0, 8.0, "boot")))
    assert (found(second), ends(second), second.apart) == (found(first), ends(first), {GPU})
    second.take_events([event(8, 79)], 9.0)
    second.take_readings([reading()], 40.0)
    assert found(second) == [(GPU, "xid", "79", 3)]
    assert (GPU, "recovery-none", 39.0) in ends(second)


def test_nothing_stands_of_a_gpu_that_the_driver_has_no_more():
    """Nobody would look at it."""
    health = Health()
    health.take_events([event(8, 13)], 5.0)
    health.take_readings([reading(recovery_action=1), reading(OTHER, recovery_action=1)], 7.0)
    health.forget_all_but([OTHER])
    assert found(health) == [(OTHER, "recovery-action", "1", 0), (GPU, "xid", "13", 1)]


def test_the_file_says_who_when_and_why_not():
    """The boot, the moment, and a failure, which takes nothing back."""
    health = Health()
    health.take_readings([reading(recovery_action=1)], 7.0)
    written = health.message(Now(5000.0, 8.0, "boot"), "NVML hangs")
    assert (written.source, written.boot_id, written.timestamp_seconds, written.failed) == (
        "nvml", "boot", 5000.0, "NVML hangs",
    )  # fmt: skip
    assert [finding.reason for finding in written.findings] == ["recovery-action"]
