"""The scanner process: wakes for device events, polls health, rescans at intervals, and writes the spool.

The only process that touches sysfs, procfs and /dev. One thread, one loop; reads that can hang are fenced in Rust.
"""

import contextlib
import logging
import math
import signal
import time

from devherd.config.resolved import Config, ResolvedFileError, awaited_config, read_resolved
from devherd.errors import DevherdError
from devherd.process import BEAT_PERIOD_SECONDS, LOOK_PERIOD_SECONDS, RENEW, Child, take_reloads
from devherd.scanner.host_events import HostChanges, HostEvents
from devherd.scanner.round import Round

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.02
"""Events come in bursts (a driver that binds makes dozens): a rescan waits this long for more of them."""
EVENT_SCAN_SECONDS = 0.25
"""Least time between two rescans for events; health is still polled at each event."""
LOOK_AGAIN_SECONDS = 0.5
"""Time until the next scan, if the host changed during the last one."""
FEW_ENTRIES = 16
"""Entries of directories that are looked at by themselves: of a burst, all nodes are looked at at once."""
KERNEL_LOG_PAUSE_SECONDS = 0.02
"""Pause between two reads of a busy kernel log: firewalls write a record for each packet."""
RETRY_SECONDS = 0.5
"""Time until an incomplete publication is tried again, if no child writes its state earlier."""


def first_scan(config: Config) -> None:
    """Scan once and write the spool, so that resource children find their files at their first start."""
    first = Round(config, config.settings())
    first.scan()
    first.poll(periodic=False)
    while first.read_kernel_log():
        pass
    first.publish()


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    loop = Loop(child)
    signal.signal(signal.SIGTERM, lambda *_: loop.end())
    signal.signal(signal.SIGHUP, lambda *_: loop.ask_to_reload())
    take_reloads()
    return loop.run()


class Loop:
    """Decides when to scan and poll: at events, every `health.poll` and every `scan.period` seconds.

    A round that has brought nothing is a heartbeat and nothing else.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = False
        self._reload_asked = False
        self._complaint = ""
        self._has_more_records = False
        self._work = Round(awaited_config(child.settings.resolved_config_file, child.beat), child.settings, child.beat)
        now = time.monotonic()
        self._next_scan = self._next_poll = self._next_publication = self._earliest_event_scan = now
        self._next_log_read = self._next_look = self._last_scan = now
        self._is_log_resting = False

    def end(self) -> None:
        """End with the current round (called by a signal)."""
        self._ended = True

    def ask_to_reload(self) -> None:
        """Reload the configuration in the next round (called by a signal)."""
        self._reload_asked = True

    def run(self) -> int:
        """Wait, scan or poll, and publish, until asked to end; returns the exit code."""
        pipeline, code = self._work.pipeline, 0
        with HostEvents.of_host(pipeline.simulated_node) if pipeline.config.scan.events else HostEvents() as events:
            while not self._ended:
                if time.monotonic() >= self._next_look and self._has_to_be_renewed():
                    code = RENEW
                    break
                self._child.beat()
                self._go_round(events)
        with contextlib.suppress(OSError):
            self._work.keep_counters()
        return code

    def _has_to_be_renewed(self) -> bool:
        """True if the sandbox no longer covers the output directories; a restart renews it."""
        if all(map(self._child.may_write, self._work.pipeline.config.directories_for_others)):
            return self._child.has_outgrown_its_sandbox()
        log.info("a directory of files for others has changed: starting again, in a sandbox with the new one")
        return True

    def _go_round(self, events: HostEvents) -> None:
        changes = events.wait(self._rest())
        self._reload_if_asked()
        now = time.monotonic()
        looks = now >= self._next_look
        if looks:
            self._look(now)
        if changes:
            self._look_at_entries(changes, events)
            self._work.poll(periodic=False, changes=changes)
            if changes.paths:
                self._watch(events)
            self._next_scan = min(self._next_scan, max(now + SETTLE_SECONDS, self._earliest_event_scan))
        has_to_scan, has_to_poll = now >= self._next_scan, now >= self._next_poll
        if has_to_scan:
            is_changing = self._work.scan()
            self._watch(events)
            self._last_scan, self._earliest_event_scan = now, now + EVENT_SCAN_SECONDS
            self._next_scan = now + LOOK_AGAIN_SECONDS if is_changing else math.inf
        if has_to_scan or has_to_poll:
            self._work.poll(periodic=has_to_poll, changes=HostChanges())
        has_news = bool(changes) or has_to_scan or changes.wakes or self._has_more_records or self._is_log_resting
        if has_news or looks:
            self._read_drivers(events)
        if has_to_poll:
            self._next_poll = now + self._work.seconds_to_next_poll()
        if has_to_scan or has_to_poll or has_news:
            period = self._work.scan_period(is_reported=events.are_reported)
            self._next_scan = min(self._next_scan, self._last_scan + period)
        if has_news or looks or has_to_poll or self._next_publication < math.inf:
            self._publish(events, looks=looks or has_news)

    def _look_at_entries(self, changes: HostChanges, events: HostEvents) -> None:
        """Where there are many devices, let the kubelet know of a node that is gone before all nodes are looked at.

        Not if a scan is due: a reloaded configuration is for the devices that it finds, and has nothing for others.
        """
        if (
            time.monotonic() < self._next_scan
            and 0 < len(changes.entries) <= FEW_ENTRIES
            and self._work.has_many_devices
        ):
            self._work.poll(periodic=False, changes=HostChanges(named=self._work.on_host(changes.entries)))
            self._publish(events, looks=False)

    def _look(self, now: float) -> None:
        """Write again the files that somebody removed; no event reports it."""
        self._next_look = now + min(LOOK_PERIOD_SECONDS, self._work.pipeline.config.scan.period or LOOK_PERIOD_SECONDS)
        if now < self._next_scan:
            self._work.restore()

    def _watch(self, events: HostEvents) -> None:
        pipeline, facts = self._work.pipeline, self._child.settings.facts_directory
        answers = [str(facts)] if facts.is_dir() else []
        findings = pipeline.findings_directories()
        events.watch([*pipeline.watched_directories(), *answers, *findings])
        pipeline.hears(of_findings=events.are_watched(findings), of_devices=events.has_uevents)

    def _read_drivers(self, events: HostEvents) -> None:
        """Read devlink, and the kernel log unless the pause after the last record is not over."""
        self._work.read_devlink()
        if self._has_more_records or time.monotonic() >= self._next_log_read:
            before = self._work.kernel_log.position
            self._has_more_records = self._work.read_kernel_log()
            if self._work.kernel_log.position != before:
                self._next_log_read = time.monotonic() + KERNEL_LOG_PAUSE_SECONDS
        self._is_log_resting = time.monotonic() < self._next_log_read
        kernel_log = None if self._is_log_resting else self._work.kernel_log.readable
        events.also_wait_for(kernel_log, self._work.pipeline.devlink.readable)

    def _publish(self, events: HostEvents, *, looks: bool) -> None:
        """Publish. While a device waits for its move to be acknowledged, also wake when a child writes its state."""
        if self._work.publish(looks=looks):
            events.watch_files(None)
            self._next_publication = math.inf
        elif events.watch_files(self._child.settings.state_directory):
            self._next_publication = time.monotonic()  # what was written before the watch began is read now
        else:
            self._next_publication = time.monotonic() + RETRY_SECONDS

    def _rest(self) -> float:
        """Seconds until something is due, at most until the next heartbeat."""
        if self._has_more_records:
            return 0.0
        now = time.monotonic()
        due = min(self._next_scan, self._next_poll, self._next_publication, self._next_look, now + BEAT_PERIOD_SECONDS)
        if now < self._next_log_read:
            due = min(due, self._next_log_read)
        return max(0.0, due - now)

    def _reload_if_asked(self) -> None:
        if not self._reload_asked:
            return
        self._reload_asked = False
        try:
            self._use(read_resolved(self._child.settings.resolved_config_file))
            self._complaint = ""
        except (ResolvedFileError, DevherdError) as error:
            if isinstance(error, ResolvedFileError):  # removed, or no descriptor is left: the next round tries again
                self._reload_asked = True
            if str(error) != self._complaint:
                log.error("configuration not reloaded, the old one stays: %s", error)
            self._complaint = str(error)

    def _use(self, config: Config) -> None:
        self._work.reconfigure(config)
        self._next_scan = self._next_look = time.monotonic()
