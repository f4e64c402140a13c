"""The supervisor's side of the hand-over: at its end, this instance hands over to one that stands by.

First all children end except those that serve the kubelet. These are asked to hand over (YIELD) and continue to serve;
the locks are released. The children of the next instance register and release these children, which then end.
device_plugin/hand_over.py and dra/driver.py describe the children's side, standby.py the standby.
"""

import logging
import time
from collections.abc import Callable, Collection

from devherd.config.sections import FrontEnd
from devherd.instance.files import read_standby
from devherd.process import YIELD, Heartbeats
from devherd.settings import Settings
from devherd.supervisor.process import Process
from devherd.text import version_text

YIELD_SECONDS = 1.0
"""Limit for a child to be ready to hand over, else it is stopped. The others serve on for `Waits.hand_over`."""
LOOK_SECONDS = 0.01
"""Time between two checks whether the children are ready."""
_FIRST_FRONT_END = "device_plugin"
"""Of versions that do not say theirs."""

log = logging.getLogger(__name__)


class HandOver:
    """The hand-over: begins when all other children have ended, lasts until those that serve the kubelet must stop."""

    def __init__(
        self, settings: Settings, front_end: FrontEnd, heartbeats: Heartbeats, let_go: Callable[[], None]
    ) -> None:
        """`let_go` leaves the run directory to the next instance. `front_end`: of this one, which no reload changes."""
        self._settings, self._front_end = settings, front_end
        self._is_yielding = heartbeats.is_yielding
        self._let_go = let_go
        self._yields_until = self._serves_until = 0.0
        self._has_let_go = self._is_over = False

    @property
    def awaits_children(self) -> bool:
        """True while the children are not ready."""
        return bool(self._yields_until) and not self._has_let_go

    def lasts(self, children: Collection[Process]) -> bool:
        """Make these children hand over; False if no instance of this front end stands by, or the time is over.

        Called repeatedly. Their programs are those that hand over.
        """
        heirs = [child for child in children if child.pid]
        if not heirs or not self._has_begun(heirs):
            return False
        now = time.monotonic()
        if not self._has_let_go:
            waiting = [child for child in heirs if not self._is_yielding(child.slot)]
            if waiting and now < self._yields_until:
                return True
            for child in waiting:
                child.kill(child.config.stopsignal)
            self._has_let_go = True
            self._let_go()
            self._serves_until = now + self._settings.waits.hand_over
        if now >= self._serves_until and not self._is_over:
            log.warning("the instance that stands by has not taken over within %.0f s", self._settings.waits.hand_over)
            self._is_over = True  # said once, however long the children take to end
        return not self._is_over

    def _has_begun(self, heirs: Collection[Process]) -> bool:
        """True once the children have been asked; asks them if an instance stands by."""
        if self._yields_until:
            return True
        standby = read_standby(self._settings.standby_file)
        if standby is None or (standby.front_end or _FIRST_FRONT_END) != self._front_end:
            return False  # by both, a device would be given twice
        self._yields_until = time.monotonic() + YIELD_SECONDS
        log.info("handing over to %s, which stands by", version_text(standby.version, standby.revision))
        for child in heirs:
            child.signal(YIELD)
        return True
