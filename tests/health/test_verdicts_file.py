"""`verdicts.pb`: what is held outlives the scanner, and says for people what takes it back."""

from devherd import spool
from devherd._native import Finding
from devherd.health.held import ANY_SOURCE, KernelLogPosition, Now, Remembered, Seen
from devherd.health.policy import Policy
from devherd.health.verdicts import LATEST_SECONDS, VerdictsFile, message_of
from devherd.proto import health_pb2
from devherd.reasons.registry import MEANINGS, STATES

PORT = ("intel-fpga", "0000:81:00.0", "dfl-port.0")
MISSING = Finding(source="node", reason="node-missing", detail="no such node", file="/dev/dfl-port.0", value="absent")
NARROW = Finding(source="pci-link", reason="link-degraded", file="/sys/current_link_width", value="8")


def fatal(count: int) -> Finding:
    return Finding(source="pci-aer-fatal", reason="pci-aer", file="/sys/aer_dev_fatal", value=str(count), count=count)


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def held(policy: Policy) -> list[health_pb2.Held]:
    return [one for verdict in message(policy).verdicts for one in verdict.held]


def message(policy: Policy) -> health_pb2.Verdicts:
    return message_of(policy, at(9))


def test_a_scanner_that_is_started_again_holds_what_the_last_one_held(tmp_path):
    """A scanner killed by the kernel must not make an ill device well, nor new what is old."""
    before = Policy(3)
    before.observe(Seen({PORT: [MISSING, NARROW, fatal(3)]}), at(1))
    file = VerdictsFile(tmp_path / "verdicts.pb")
    file.write(before, at(2))

    after = Policy(3)
    after.restore(VerdictsFile(tmp_path / "verdicts.pb").read(), [PORT], at(5))

    assert after.verdicts() == before.verdicts()
    facts = [(one.first, one.last, one.count) for one in after.held_against(PORT)]
    assert facts == [(one.first, one.last, one.count) for one in before.held_against(PORT)]


def test_what_stood_at_the_first_look_is_a_warning_after_a_restart_of_the_scanner_too(tmp_path):
    """And a bit that came while somebody looked is none."""
    before, after = Policy(3), Policy(3)
    old = Finding(source="fpga-errors", reason="port-error", file="/sys/errors", value="0x1")
    new = Finding(source="fpga-errors", reason="port-error", file="/sys/other", value="0x1")
    before.observe(Seen({PORT: [old]}, {PORT: {}}), at(0))
    before.observe(Seen({PORT: [old, new]}, {PORT: {}}), at(1))
    VerdictsFile(tmp_path / "verdicts.pb").write(before, at(2))

    after.restore(VerdictsFile(tmp_path / "verdicts.pb").read(), [PORT], at(3))
    after.observe(Seen({PORT: [old, new]}, {PORT: {}}), at(4))

    assert [(one.finding.file, one.action) for one in after.held_against(PORT)] == [
        ("/sys/other", "unhealthy"),
        ("/sys/errors", "warn"),
    ]


def test_the_first_error_after_a_restart_of_the_scanner_is_a_new_one(tmp_path):
    """The scan core counts from one again: one is no known event."""
    before = Policy(3)
    before.observe(Seen({PORT: [fatal(1)]}), at(1))
    file = VerdictsFile(tmp_path / "verdicts.pb")
    file.write(before, at(2))

    after = Policy(3)
    after.restore(file.read(), [PORT], at(3))
    after.observe(Seen({PORT: [fatal(1)]}), at(4))

    assert [(one.count, one.last) for one in after.held_against(PORT)] == [(2, at(4).wall)]


def test_it_says_what_takes_a_finding_back_and_why_not_yet():
    """In words, for `devherd explain`."""
    policy = Policy(3)
    policy.observe(Seen({PORT: [MISSING, fatal(1)]}), at(0))
    policy.observe(Seen({PORT: [fatal(1)]}), at(1))

    assert [(one.reason, one.ends, one.so_far) for one in held(policy)] == [
        ("node-missing", "when 3 polls in a row find it there", "1 of 3 good polls"),
        ("pci-aer", "after 600 s without another event", "the last event was 9 s ago"),
    ]


def test_what_is_held_because_it_is_seen_says_what_is_seen_since_when_and_what_poll_ends_it():
    """A lost card is not found: it does not say that something is still seen."""
    policy = Policy(3)
    policy.observe(Seen({PORT: [Finding(source="inventory", reason="gone")]}), at(0))
    [gone] = held(policy)
    assert f"{gone.so_far}; ends {gone.ends}" == "not found since 13:46:40Z; ends when 3 polls in a row find it"

    policy = Policy(1)
    policy.observe(Seen({PORT: [NARROW, Finding(source="rdma-port", reason="port-down")]}), at(0))
    assert [(one.ends, one.so_far) for one in held(policy)] == [
        (
            "when 1 poll finds its best link, or by devherd clear dfl-port.0 link-degraded",
            "below its best link since 13:46:40Z",
        ),
        ("when 1 poll finds one active", "no port active since 13:46:40Z; counts at 13:47:10Z if it lasts"),
    ]


def test_every_condition_has_words_for_what_is_seen_while_it_lasts():
    """And no other reason has any: a cordon has its own."""
    conditions = {
        reason
        for (_, reason), meaning in MEANINGS.items()
        for one in (meaning, *meaning.by_value.values())
        if not one.is_event
    }
    assert set(STATES) == conditions - {"cordoned"}


def test_the_gravest_finding_comes_first():
    """Unhealthy before a warning, a device that is not there before what is wrong with it, a cordon last."""
    xid = Finding(source="kernel-log", reason="xid", file="/dev/kmsg", value="79")
    cordoned = Finding(source="cordon", reason="cordoned")
    policy = Policy(3)
    seen = Seen({PORT: [cordoned, NARROW, Finding(source="inventory", reason="gone"), MISSING, fatal(1)]})
    seen.happened(PORT, xid, 1.0)
    policy.observe(seen, at(1))

    assert [one.reason for one in held(policy)] == [
        "gone",
        "xid",
        "node-missing",
        "pci-aer",
        "cordoned",
        "link-degraded",
    ]


def test_what_a_person_does_is_filled_with_what_is_known_of_the_device():
    """Address, resource and id, in the verdict and in the commands that end it; without them it is whole, too."""
    xid = Finding(source="kernel-log", reason="xid", file="/dev/kmsg", value="48")
    facts = {"pci_address": "0000:81:00.0", "resource": "nvidia.com/gpu"}
    policy, seen = Policy(3), Seen()
    seen.happened(PORT, xid, 1.0)
    policy.observe(seen, at(1))

    [known] = message_of(policy, at(2), lambda _: facts).verdicts[0].held
    [unknown] = held(policy)
    again = ", or reboot; if it comes again, ask NVIDIA with nvidia-bug-report.sh"
    assert known.do == f"end its pods and reset the GPU (nvidia-smi --gpu-reset -i 0000:81:00.0){again}"
    assert unknown.do == f"end its pods and reset the GPU{again}"
    assert known.ends.endswith(" or devherd clear nvidia.com/gpu dfl-port.0 xid")


def test_it_says_that_a_reset_is_not_noticed_where_nvml_does_not_report():
    """The driver prints nothing after `nvidia-smi -r`: somebody has to say it."""
    gpu = ("nvidia", "0000:01:00.0", "GPU-1")
    printed = Finding(source="kernel-log", reason="recovery-action", file="/dev/kmsg", value="1")
    policy = Policy(3)
    alone, beside, failed = Seen(), Seen(reported={"nvml": 1.0}), Seen(reported={"nvml": 1.0}, failed={"nvml": "x"})
    alone.happened(gpu, printed, 1.0)
    said = []
    for second, seen in enumerate((alone, beside, failed), 2):
        policy.observe(seen, at(second))
        said.append(held(policy)[0].so_far)

    nothing = "nothing of that was seen since 13:46:41Z"
    unseen = "without NVML a reset of the GPU is not noticed: after one, devherd clear GPU-1 recovery-action ends it"
    by_hand = f"{nothing}; {unseen}"
    assert said == [by_hand, nothing, by_hand]


def test_it_says_why_a_device_is_not_looked_at():
    """Frozen, and by what."""
    policy = Policy(3)
    policy.observe(Seen({PORT: [MISSING]}), at(0))
    policy.observe(Seen(not_looked={PORT: {ANY_SOURCE: "the card does not answer"}}), at(1))

    [verdict] = message(policy).verdicts
    assert verdict.frozen == "the card does not answer"
    assert (
        verdict.held[0].so_far == "not checked: the card does not answer; devherd clear dfl-port.0 node-missing ends it"
    )
    assert verdict.held[0].is_unseen


def test_it_says_when_the_word_of_a_source_that_is_away_no_longer_counts():
    """A dead exporter's is let go after three minutes."""
    ill = Finding(source="amd-exporter", reason="external", file="socket", value="unhealthy")
    policy = Policy(3)
    policy.observe(Seen({PORT: [ill]}), at(0))
    policy.observe(Seen(failed={"amd-exporter": "UNAVAILABLE: x"}, lets_go_after={"amd-exporter": 180.0}), at(1))

    [found] = held(policy)
    what = "it no longer counts after 180 s without a report"
    assert found.so_far == f"not checked: UNAVAILABLE: x; {what}; devherd clear dfl-port.0 external ends it"


def test_a_good_look_that_was_counted_is_not_counted_again_by_the_next_scanner(tmp_path):
    """It reads the same answer of a monitor."""
    ill = Finding(source="amd-exporter", reason="external", file="socket", value="unhealthy")
    well = Seen(looks={"amd-exporter": 30.0})
    before = Policy(3)
    before.observe(Seen({PORT: [ill]}), at(0))
    before.observe(well, at(31))
    VerdictsFile(tmp_path / "verdicts.pb").write(before, at(32))

    after = Policy(3)
    after.restore(VerdictsFile(tmp_path / "verdicts.pb").read(), [PORT], at(33))
    after.observe(well, at(34))

    assert [(one.good_looks, one.good_look) for one in after.held_against(PORT)] == [(1, 30.0)]


def test_sources_that_cannot_look_are_named():
    """Their trouble is not a device's."""
    policy = Policy(3)
    policy.observe(Seen(failed={"nvml": "driver not loaded"}), at(0))

    assert [(source.source, source.failed) for source in message(policy).sources] == [("nvml", "driver not loaded")]


def test_a_fault_that_only_goes_on_is_not_written_at_each_look(tmp_path):
    """An idle node writes nothing; the time of the last look may be a few seconds old."""
    path = tmp_path / "verdicts.pb"
    policy, file = Policy(3), VerdictsFile(path)
    written = []
    for second in range(int(LATEST_SECONDS) + 1):
        policy.observe(Seen({PORT: [MISSING]}), at(second))
        file.write(policy, at(second))
        written.append(spool.read(path, health_pb2.Verdicts).timestamp_seconds)

    assert written == [at(0).wall] * int(LATEST_SECONDS) + [at(LATEST_SECONDS).wall]


def test_records_of_the_kernel_log_that_say_nothing_are_not_written_down_each(tmp_path):
    """A firewall logs each packet: every line rewrote the file. What a record said is written with its number."""
    path = tmp_path / "verdicts.pb"
    policy, file = Policy(3), VerdictsFile(path)

    def written(second: float, record: int, *, at_once: bool = False) -> int:
        file.write(policy, at(second), Remembered(KernelLogPosition(record, 0.0)), at_once=at_once)
        return int(spool.read(path, health_pb2.Verdicts).kernel_log.next_record)

    assert [written(0, 1), written(0.1, 2), written(0.2, 3)] == [1, 1, 1]
    assert written(0.3, 4, at_once=True) == 4
    assert written(0.4, 5) == 4
    assert written(LATEST_SECONDS + 1, 6) == 6


def test_words_that_are_not_registered_any_more_are_left_out(tmp_path):
    """A file of another version of devherd holds nothing that nobody could take back."""
    left = health_pb2.Held(source="crystal-ball", reason="doom")
    verdict = health_pb2.Verdict(vendor=PORT[0], card=PORT[1], device=PORT[2], held=[left])
    spool.write(tmp_path / "verdicts.pb", health_pb2.Verdicts(verdicts=[verdict]))

    assert list(VerdictsFile(tmp_path / "verdicts.pb").read().held) == []
