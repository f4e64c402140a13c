"""The log lines and events of changes: of health sources once each way, of verdicts with what was seen."""

import logging

from offered import served_of

from devherd import history
from devherd._native import Finding
from devherd.health.held import Held
from devherd.history import History
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import meaning_of
from devherd.scanner.change_log import SETTLED_SECONDS, ChangeLog

FANS = "external-fans"


def state(source: str = FANS, failed: str = "", *errors: str) -> health_pb2.SourceState:
    return health_pb2.SourceState(source=source, failed=failed, report_errors=errors, last_report_timestamp_seconds=1)


class Log:
    """A change log, and the messages of its events."""

    def __init__(self, directory, *known: health_pb2.SourceState) -> None:
        self._directory = directory
        self.change_log = ChangeLog(History(directory / "history", "scanner"), [], [], known)

    def found(self, second: float, *sources: health_pb2.SourceState) -> None:
        self.change_log.found_sources(sources, second)

    def events(self) -> list[tuple[str, str]]:
        self.change_log.write()
        return [(event.kind, event.message) for event in history.events(self._directory)]


def test_a_source_that_cannot_look_is_logged_once_and_once_when_it_looks_again(tmp_path, caplog):
    """Whatever else it says of why meanwhile; the event is the same."""
    log = Log(tmp_path)
    with caplog.at_level(logging.INFO):
        log.found(0.0, state())
        for second in range(1, 4):
            log.found(second, state(failed=f"it ended; next start in {second} s"))
        for second in range(10, 30):
            log.found(second, state())

    failed, again = (
        "source external-fans: it cannot check devices: it ended; next start in 1 s",
        "source external-fans: it checks devices again",
    )
    assert log.events() == [("problem", failed), ("problem", again)]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", failed),
        ("INFO", again),
    ]


def test_a_source_that_fails_again_and_again_is_logged_once(tmp_path):
    """A program that ends after each line looks for a moment each time."""
    log = Log(tmp_path)
    for second in range(0, 100, 5):
        log.found(second, state(failed="it ended"))
        log.found(second + 1, state())
        log.found(second + SETTLED_SECONDS - 0.1, state())

    assert [message for _, message in log.events()] == ["source external-fans: it cannot check devices: it ended"]


def test_a_source_that_had_failed_before_the_scanner_started_is_not_logged_again(tmp_path):
    """Its end is."""
    log = Log(tmp_path, state(failed="it ended"))
    log.found(0.0, state(failed="it ended"))
    log.found(1.0, state())
    log.found(1.0 + SETTLED_SECONDS, state())

    assert log.events() == [("problem", "source external-fans: it checks devices again")]


def test_a_source_that_is_taken_out_of_the_configuration_does_not_look_again(tmp_path):
    """One without a process of its own is not listed while it looks."""
    log = Log(tmp_path, state(failed="it ended"), state("devlink", "no permission"))
    log.found(0.0)
    log.found(SETTLED_SECONDS)

    assert sorted(message for _, message in log.events()) == [
        "source devlink: it checks devices again",
        "source external-fans: it is not asked any more",
    ]


def test_wrong_reports_are_logged_beside_a_failure(tmp_path):
    """Each has its own end."""
    log = Log(tmp_path)
    log.found(0.0, state(FANS, "", "1 finding names no device of `match`, first: card x: hot"))
    log.found(1.0, state(FANS, "it ended", "2 findings name no device of `match`, first: card x: hot"))
    log.found(2.0, state(FANS, "it ended"))
    log.found(2.0 + SETTLED_SECONDS, state(FANS, "it ended"))

    assert [message for _, message in log.events()] == [
        "source external-fans: 1 finding names no device of `match`, first: card x: hot",
        "source external-fans: it cannot check devices: it ended",
        "source external-fans: nothing is wrong with its reports any more",
    ]


PLACE = {"pci_address": "0000:83:00.0", "slot": "4", "serial": "SN-1652"}


def verdicts_logged(tmp_path, finding: Finding, *verdicts: tuple[list[str], list[str]]) -> list[str]:
    log = Log(tmp_path)
    held = Held(finding, meaning_of(finding), 0.0, 0.0, 0.0, 0.0, "boot-1")
    for reasons, warnings in verdicts:
        place = {} if finding.source == FANS else PLACE
        device = spool_pb2.Device(id="GPU-1", reasons=reasons, warnings=warnings, attributes=place)
        offer = spool_pb2.Offer(name="a.b/gpu", devices=[device])
        log.change_log.published([served_of(offer).offer], lambda _: [held], is_complete=True)
    return [message for _, message in log.events()]


def test_a_verdict_by_an_operators_program_names_the_source_and_its_detail(tmp_path):
    """`external` alone, and the path of a shell, say nothing; a doubt that ends is a new reason."""
    hot = Finding(source=FANS, reason="external", detail="91 °C", file="/bin/sh#hot", value="hot")

    assert verdicts_logged(tmp_path, hot, ([], ["external"]), (["external"], [])) == [
        "Healthy (warning: external): external-fans: hot: 91 °C",
        (
            "Unhealthy: external: external-fans: hot: 91 °C; do: read what fans reports: 91 °C; "
            "ends when 1 poll finds no report of it"
        ),
    ]


def test_a_word_that_is_its_own_detail_is_said_once(tmp_path):
    """A program gives a detail, or none."""
    hot = Finding(source=FANS, reason="external", detail="hot", file="/opt/fans#hot", value="hot")

    assert verdicts_logged(tmp_path, hot, (["external"], [])) == [
        (
            "Unhealthy: external: external-fans: hot; do: read what fans reports: hot; "
            "ends when 1 poll finds no report of it"
        )
    ]


def test_a_verdict_has_the_drivers_words_where_the_card_is_and_what_takes_it_back(tmp_path):
    """Defect: `xid: /dev/kmsg: 79`, which says neither what has happened nor which card to pull."""
    words = "NVRM: Xid (PCI:0000:83:00): 79, GPU has fallen off the bus."
    lost = Finding(source="kernel-log", reason="xid", detail=words, file="/dev/kmsg", value="79")

    [said] = verdicts_logged(tmp_path, lost, (["xid"], []))
    assert said == (
        f"Unhealthy: xid: {words} (/dev/kmsg: 79); do: drain and reboot the node; if it comes again, have the card in "
        "slot 4 (0000:83:00.0) checked or replaced; PCI address 0000:83:00.0; slot 4; serial SN-1652; ends by "
        "rebinding its driver, removing and re-adding it, a reboot, its driver's word that it needs no recovery, a "
        "reset that NVML detects or devherd clear a.b/gpu GPU-1 xid"
    )


def test_a_verdict_of_a_register_has_the_words_beside_its_number(tmp_path):
    """A bit mask says nothing to people; a word that was read does."""
    port = Finding(source="fpga-errors", reason="port-error", detail="the port has errors", file="errors", value="0x20")
    absent = Finding(source="node", reason="node-missing", detail="the node is absent", file="/dev/x", value="absent")

    [said, *_] = verdicts_logged(tmp_path / "1", port, (["port-error"], []))
    [missing, *_] = verdicts_logged(tmp_path / "2", absent, (["node-missing"], []))

    assert said.startswith("Unhealthy: port-error: the port has errors (errors: 0x20); ")
    assert missing.startswith("Unhealthy: node-missing: /dev/x: absent; ")


def test_a_cordon_says_who_why_and_the_command_that_ends_it(tmp_path):
    """Defect: its log line lacked the reason, and nothing said how it ends."""
    cordon = Finding(source="cordon", reason="cordoned", detail="ticket 4711", file="devherd cordon", value="by root")

    [said] = verdicts_logged(tmp_path, cordon, (["cordoned"], []))
    assert said == (
        "Unhealthy: cordoned: ticket 4711, by root; do: run devherd uncordon a.b/gpu GPU-1 when the work on it is "
        "done; PCI address 0000:83:00.0; slot 4; serial SN-1652"
    )
