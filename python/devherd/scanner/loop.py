"""The scanner process: wakes for device events, polls health, rescans at intervals, and writes the run directory.

The only process that touches sysfs, procfs and /dev. One thread, one loop; reads that can hang are fenced in Rust.
"""

import contextlib
import logging
import math
import signal
import time

from devherd import signals
from devherd.config.resolved import ResolvedConfig, ResolvedFileError, awaited_config, read_resolved
from devherd.errors import DevherdError
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, LOOK_PERIOD_SECONDS, RENEW, Child, take_reloads
from devherd.scanner.files import ScannerFiles
from devherd.scanner.host_events import HostChanges, HostEvents

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.02
"""Events come in bursts (a driver that binds makes dozens): a rescan waits this long for more of them."""
EVENT_SCAN_SECONDS = 0.25
"""Least time between two rescans for events; health is still polled at each event."""
LOOK_AGAIN_SECONDS = 0.5
"""Time until the next scan, if the host changed during the last one."""
SCAN_SECONDS = 5.0
"""Time between two scans if `scan.period` is not set."""
REPORTED_SCAN_SECONDS = 30.0
"""As SCAN_SECONDS, if the kernel reports device events and every device is healthy."""
SHORTEST_PAUSE_SECONDS = 1.0
"""Minimum `health.poll` with which regular polls may be skipped: sources look at most once a second."""
RETRY_SECONDS = 0.5
"""Time until an incomplete publication is tried again, if no child writes its state earlier."""


def first_scan(config: ResolvedConfig) -> None:
    """Scan once and write the run directory, so that resource children find their files at their first start."""
    files = ScannerFiles(config, config.settings())
    observer = files.observer
    observer.scan(time.monotonic())
    files.write_requests()
    observer.poll(periodic=False)
    while observer.read_kernel_log():
        pass
    files.publish()


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    loop = Loop(child)
    signals.remember()
    signal.signal(signal.SIGHUP, lambda *_: loop.ask_to_reload())
    take_reloads()
    return loop.run()


class Loop:
    """Decides when to scan, to poll and to write: at events, every `health.poll` and every `scan.period` seconds.

    A round without news only sends a heartbeat.
    """

    def __init__(self, child: Child) -> None:
        config = awaited_config(child.settings.resolved_config_file, child.beat)
        self._child = child
        self._files = ScannerFiles(config, child.settings, child.beat)
        self._observer = self._files.observer
        self._is_reload_asked = False
        self._refused_reload = Once(log.error)
        now = time.monotonic()
        self._next_scan = self._next_poll = self._next_look = self._next_publication = now
        self._last_scan = now - EVENT_SCAN_SECONDS
        self._last_poll = now

    def ask_to_reload(self) -> None:
        """Reload the configuration in the next round (called by a signal)."""
        self._is_reload_asked = True

    def run(self) -> int:
        """Wait, scan or poll, and publish, until asked to end; returns the exit code."""
        observer, code = self._observer, 0
        with HostEvents.of_host(observer.simulated_node) if observer.config.scan.events else HostEvents() as events:
            while not signals.is_to_end():
                if time.monotonic() >= self._next_look and self._has_to_be_renewed():
                    code = RENEW
                    break
                self._child.beat()
                self._go_round(events)
        with contextlib.suppress(OSError):
            self._files.keep_counters()
        return code

    def _has_to_be_renewed(self) -> bool:
        """True if the sandbox no longer covers the output directories; a restart renews it."""
        if all(map(self._child.may_write, self._observer.config.directories_for_others)):
            return self._child.has_outgrown_its_sandbox()
        log.info("a directory of files for others has changed: starting again, in a sandbox with the new one")
        return True

    def _go_round(self, events: HostEvents) -> None:
        observer = self._observer
        changes = events.wait(self._rest())
        if self._is_reload_asked:
            self._reload()
        now = time.monotonic()
        looks = now >= self._next_look
        if looks:
            self._look(now)
        if changes:
            self._take_in(changes, now, events)
        scans, polls = now >= self._next_scan, now >= self._next_poll
        if scans:
            self._scan(now, events)
        if scans or polls:
            observer.poll(periodic=polls, changes=HostChanges())
        if polls:
            self._last_poll = now
            self._next_poll = now + self._poll_period()
        has_news = bool(changes) or scans or changes.wakes or now >= observer.kernel_log.due_at
        if has_news or looks:
            self._read_drivers(events)
            self._poll_soon_unless_settled()
        if has_news or polls:
            self._next_scan = min(self._next_scan, self._last_scan + self._scan_period(events))
        if has_news or looks or polls or now >= self._next_publication:
            self._publish(events, looks=looks or has_news)

    def _rest(self) -> float:
        """Seconds until something is due, at most until the next heartbeat."""
        now = time.monotonic()
        due = min(
            self._next_scan,
            self._next_poll,
            self._next_publication,
            self._next_look,
            self._observer.kernel_log.due_at,
            now + BEAT_PERIOD_SECONDS,
        )
        return max(0.0, due - now)

    def _look(self, now: float) -> None:
        """Restore files that somebody has removed: no event reports their removal."""
        self._next_look = now + min(LOOK_PERIOD_SECONDS, self._observer.config.scan.period or LOOK_PERIOD_SECONDS)
        if now < self._next_scan:
            self._files.write_requests()
            self._observer.restore()

    def _take_in(self, changes: HostChanges, now: float, events: HostEvents) -> None:
        """Poll the changed devices at once, and scan soon: more changes may follow."""
        self._observer.poll(periodic=False, changes=changes)
        if changes.paths:
            self._watch(events)
        self._next_scan = min(self._next_scan, max(now + SETTLE_SECONDS, self._last_scan + EVENT_SCAN_SECONDS))

    def _scan(self, now: float, events: HostEvents) -> None:
        scan = self._observer.scan(now)
        self._files.write_requests()
        self._watch(events)
        self._last_scan = now
        self._next_scan = now + LOOK_AGAIN_SECONDS if scan.look_again else math.inf

    def _scan_period(self, events: HostEvents) -> float:
        """Seconds from the last scan to the next one."""
        observer = self._observer
        period = observer.config.scan.period
        if period is None:
            is_well = observer.is_settled and not observer.scan_problems
            period = REPORTED_SCAN_SECONDS if events.are_reported and is_well else SCAN_SECONDS
        if observer.changes_in_silence:
            period = min(period, SCAN_SECONDS)
        self._files.note_period(period)
        return period

    def _poll_period(self) -> float:
        """Seconds from a regular poll to the next one: `health.poll`, or longer if nothing is due earlier."""
        period = self._observer.config.health.poll
        may_rest = period >= SHORTEST_PAUSE_SECONDS and self._observer.is_settled
        return max(period, self._observer.poller.pause()) if may_rest else period

    def _poll_soon_unless_settled(self) -> None:
        """Do not wait for a rare poll, which was planned while all was well: from now on, good looks count."""
        if not self._observer.is_settled:
            self._next_poll = min(self._next_poll, self._last_poll + self._poll_period())

    def _watch(self, events: HostEvents) -> None:
        observer, facts = self._observer, self._child.settings.facts_directory
        answers = [str(facts)] if facts.is_dir() else []
        findings = observer.findings_directories()
        events.watch([*observer.watched_directories(), *answers, *findings])
        observer.is_told(of_findings=events.are_watched(findings), of_devices=events.has_uevents)

    def _read_drivers(self, events: HostEvents) -> None:
        """Read devlink, and also the kernel log if its pause is over."""
        observer = self._observer
        observer.read_devlink()
        if not observer.kernel_log.is_resting:
            observer.read_kernel_log()
        kernel_log = None if observer.kernel_log.is_resting else observer.kernel_log.readable
        events.also_wait_for(kernel_log, observer.devlink.readable)

    def _publish(self, events: HostEvents, *, looks: bool) -> None:
        """Publish. While a device waits for its move to be acknowledged, also wake when a child writes its state."""
        if self._files.publish(looks=looks):
            events.watch_files(None)
            self._next_publication = math.inf
        elif events.watch_files(self._child.settings.state_directory):
            self._next_publication = time.monotonic()  # what was written before the watch began is read now
        else:
            self._next_publication = time.monotonic() + RETRY_SECONDS

    def _reload(self) -> None:
        self._is_reload_asked = False
        try:
            self._use(read_resolved(self._child.settings.resolved_config_file))
            self._refused_reload.over()
        except (ResolvedFileError, DevherdError) as error:
            if isinstance(error, ResolvedFileError):  # removed, or no descriptor is left: the next round tries again
                self._is_reload_asked = True
            self._refused_reload.complain("configuration not reloaded, the old one stays: %s", error)

    def _use(self, config: ResolvedConfig) -> None:
        self._observer.reconfigure(config)
        self._files.reconfigured(config)
        self._next_scan = self._next_look = time.monotonic()
