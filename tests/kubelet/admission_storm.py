"""Pods that come and go without a pause, and what the kubelet lists meanwhile."""

import itertools
import threading
from types import TracebackType
from typing import Self

from real_kubelet import RealKubelet, pod


class AdmissionStorm:
    """While entered: pods of one device, admitted and freed one after another, and the Node's numbers, asked for."""

    def __init__(self, kubelet: RealKubelet, resource: str) -> None:
        self._kubelet = kubelet
        self._resource = resource
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._admit, self._look)]
        self.refusals: list[str] = []
        """What the kubelet said of each pod that it refused."""
        self.admitted = self.looks = 0
        self.lowest = 1 << 30
        """The smallest number of allocatable devices seen."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _admit(self) -> None:
        for number in itertools.count():
            if self._ended.is_set():
                return
            uid = f"storm-{number}"
            admission = self._kubelet.admit(pod(uid, {self._resource: 1}))
            if admission.admitted and not admission.main.error:
                self.admitted += 1
            else:
                self.refusals.append(admission.message or admission.main.error)
            if admission.admitted:
                self._kubelet.ask("free", uid=uid)

    def _look(self) -> None:
        while not self._ended.is_set():
            seen = self._kubelet.capacity(self._resource)
            self.lowest = min(self.lowest, seen[1] if seen else 0)
            self.looks += 1
