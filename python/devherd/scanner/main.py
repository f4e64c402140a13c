"""The scanner process: wakes for device events, polls health, rescans now and then, and writes the spool.

The only process that touches sysfs, procfs and /dev. One thread, one loop; reads that can hang are fenced in Rust.
"""

import contextlib
import logging
import os
import signal
import time

from prometheus_client import Counter

from devherd import config as configuration
from devherd.child import BEAT_PERIOD_SECONDS, Child, take_reloads
from devherd.config import Config
from devherd.errors import DevherdError
from devherd.scanner.account import Account
from devherd.scanner.host_events import HostEvents
from devherd.settings import Settings

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.02
"""Events come in bursts (a driver that binds makes dozens): a rescan waits this long for more of them."""
EVENT_SCAN_SECONDS = 0.25
"""Between two rescans for events; health is polled at each event all the same."""
MOVE_SECONDS = 0.5
"""Between a device's leaving one resource and its entering another."""

RELOADS = Counter("devherd_config_reloads", "Requests to reload the configuration.")
RELOAD_FAILURES = Counter("devherd_config_reload_failures", "Reloads refused because the configuration was bad.")


def first_scan(config: Config) -> None:
    """Scan once and write the spool, so that resource children find their snapshots when they are first started."""
    account = Account(config, config.settings())
    account.scan()
    account.publish()


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    loop = Loop(child)
    signal.signal(signal.SIGTERM, lambda *_: loop.end())
    signal.signal(signal.SIGHUP, lambda *_: loop.ask_to_reload())
    take_reloads()
    return loop.run()


class Loop:
    """When to look: at events, each `health.poll`, each `scan.period`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = False
        self._reload_asked = False
        self._account = Account(_config_at_start(child.settings), child.settings)
        now = time.monotonic()
        self._next_scan = self._next_poll = self._next_publication = self._earliest_event_scan = now

    def end(self) -> None:
        """End with the current round (called by a signal)."""
        self._ended = True

    def ask_to_reload(self) -> None:
        """Reload the configuration in the next round (called by a signal)."""
        self._reload_asked = True

    def run(self) -> int:
        """Rounds of wait, look, publish until the end is asked for."""
        with HostEvents(listen=self._account.pipeline.config.scan.events) as events:
            while not self._ended:
                self._child.beat()
                self._round(events)
        return 0

    def _round(self, events: HostEvents) -> None:
        happened = events.wait(self._rest())
        self._reload_if_asked()
        now = time.monotonic()
        if happened:
            self._account.poll(periodic=False)
            self._next_scan = min(self._next_scan, max(now + SETTLE_SECONDS, self._earliest_event_scan))
        if now >= self._next_scan:
            self._account.scan()
            events.watch(self._account.pipeline.watched_directories())
            self._earliest_event_scan = now + EVENT_SCAN_SECONDS
            self._next_scan = now + self._account.pipeline.config.scan.period
        if now >= self._next_poll:
            self._account.poll(periodic=True)
            self._next_poll = now + self._account.pipeline.config.health.poll
        if now >= self._next_publication and not self._account.publish():
            self._next_publication = now + MOVE_SECONDS

    def _rest(self) -> float:
        """Seconds until something is due, the next beat at the latest."""
        now = time.monotonic()
        due = [self._next_scan, self._next_poll, now + BEAT_PERIOD_SECONDS]
        if self._next_publication > now:
            due.append(self._next_publication)
        return max(0.0, min(due) - now)

    def _reload_if_asked(self) -> None:
        if not self._reload_asked:
            return
        self._reload_asked = False
        RELOADS.inc()
        try:
            self._use(configuration.reload(self._child.settings, os.environ))
        except DevherdError as error:
            RELOAD_FAILURES.inc()
            log.error("configuration not reloaded, the old one stays: %s", error)

    def _use(self, config: Config) -> None:
        for option in configuration.changed_fixed_options(self._child.settings, config):
            log.warning("%s has changed in the configuration: this takes a restart, the rest is in force", option)
        self._account.pipeline.reconfigure(config)
        _remember(config, self._child.settings)
        self._next_scan = time.monotonic()
        log.info("configuration reloaded from %s", config.source or "options and environment")


def _config_at_start(settings: Settings) -> Config:
    """The configuration; the last good one when the file has become bad since."""
    try:
        config = configuration.reload(settings, os.environ)
    except DevherdError as error:
        if not settings.last_good_config_file.exists():
            raise
        log.error("%s; going on with the last good one", error)
        return Config.model_validate_json(settings.last_good_config_file.read_bytes())
    _remember(config, settings)
    return config


def _remember(config: Config, settings: Settings) -> None:
    temporary = settings.last_good_config_file.with_suffix(".new")
    try:
        temporary.write_text(config.model_dump_json(by_alias=True))
        temporary.rename(settings.last_good_config_file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        log.warning("the configuration in force cannot be kept for a restart with a bad file: %s", error)
