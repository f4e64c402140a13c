"""What comes of KFD's events: a GPU is being reset from the one that says so until the one that says it is over."""

import logging
import select
import time
from pathlib import Path

from devherd.health.clears import Evidence
from devherd.health.registry import GPU_RESET
from devherd.health.sources.amd_kfd import listeners, topology
from devherd.health.sources.amd_kfd.events import Reset, resets_in
from devherd.health.sources.amd_kfd.listeners import Listeners
from devherd.health.sources.external.report import Report
from devherd.health.sources.order import Order
from devherd.proto import health_pb2
from devherd.simulated_host import is_simulated

log = logging.getLogger(__name__)

AGAIN_SECONDS = 30.0
"""Between two looks at which GPUs there are, and two attempts at a device that may not be opened."""
_CURE = "a container needs the device: add the component amd of the DaemonSet; or set health.amd_kfd to false"


class AmdKfd:
    """Listens to all GPUs of the host."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.socket)
        self.spoke_at = time.monotonic()
        self._device = Path(order.socket)
        self._host_root = self._device.parents[1]
        self._slots: dict[int, str] = {}
        self._listeners = Listeners()
        self._look_at = self.spoke_at
        self._refusal = ""

    def listen(self, timeout: float) -> None:
        """Take in what is said."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + AGAIN_SECONDS
            self._look()
        descriptors = self._listeners.descriptors()
        if not descriptors:
            time.sleep(timeout)
            return
        if select.select(descriptors, [], [], timeout)[0]:
            for gpu_id, text in self._listeners.hear():
                for reset in resets_in(text):
                    self._take(self._slots.get(gpu_id, ""), reset)
        self.spoke_at = time.monotonic()

    def close(self) -> None:
        """Let go of the descriptors."""
        self._listeners.close()

    def _look(self) -> None:
        """Open what is not open. That succeeds when no reset is under way: KFD lets nobody in before it is over."""
        slots = topology.slots(self._host_root)
        if slots == self._slots and self._listeners.descriptors() and self._device.exists():
            return
        self._listeners.close()
        try:
            simulated = is_simulated(self._host_root)
            self._listeners = (
                listeners.simulated(self._host_root) if simulated else listeners.opened(self._device, slots)
            )
            self._slots, self._refusal = slots, ""
            self._end_all()
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._refusal:
                log.warning("resets of AMD GPUs are not heard: %s: %s: %s", self._device, why, _CURE)
            self._refusal = why

    def _end_all(self) -> None:
        """Of resets whose end nobody heard: they ended before this process began, or while nothing was open."""
        over = self.report.evidence
        for at in [one.at for (whom, _), one in self.report.findings.items() if whom not in over]:
            self._end(at)

    def _end(self, at: health_pb2.Target) -> None:
        self.report.evidence[at.SerializeToString()] = health_pb2.Evidence(
            at=at, evidence=Evidence.SOURCE_CLEARED, reason=GPU_RESET, monotonic_seconds=time.monotonic()
        )

    def _take(self, slot: str, reset: Reset) -> None:
        if not slot:
            return
        at = health_pb2.Target(vendor="amd", pci_address=slot)
        whom = at.SerializeToString()
        key = next((key for key in self.report.findings if key[0] == whom), (whom, ""))
        is_known = key in self.report.findings
        moment = time.monotonic()
        if reset.begins:
            finding = self.report.findings.setdefault(
                key, health_pb2.Finding(at=at, reason=GPU_RESET, file=self.report.origin)
            )
            was_over = not is_known or whom in self.report.evidence
            self.report.evidence.pop(whom, None)
            finding.detail = "the driver resets the GPU" + (f": {reset.cause}" if reset.cause else "")
            finding.value = reset.cause
            finding.count += was_over  # each partition of a GPU is told of the same reset
            if was_over:
                finding.last_monotonic_seconds = moment
        elif is_known:
            self._end(at)
