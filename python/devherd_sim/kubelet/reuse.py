"""The devices of init containers that are over, on offer to the later containers of their pod."""

from devherd_sim.kubelet.ledger import Ledger
from devherd_sim.kubelet.pod import ContainerSpec, Pod


class Reuse:
    """Of the pod that is being admitted: those of the pod before are forgotten when another comes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._uid = ""
        self._offered: dict[str, set[str]] = {}

    def of(self, pod: Pod) -> dict[str, set[str]]:
        """The devices on offer, by resource."""
        if self._uid != pod.uid:
            return {}
        return {resource: set(ids) for resource, ids in self._offered.items()}

    def begin(self, pod: Pod) -> None:
        """A pod is about to be given devices; a pod rejected before that changes nothing."""
        if self._uid != pod.uid:
            self._uid, self._offered = pod.uid, {}

    def after(self, pod: Pod, spec: ContainerSpec) -> None:
        """A container has been given its devices: an init container will leave them, any other keeps them."""
        leaves = spec in pod.init_containers and not spec.restartable
        for held in self._ledger.of(pod.container(spec.name)):
            offered = self._offered.setdefault(held.resource, set())
            if leaves:
                offered.update(held.device_ids)
            else:
                offered.difference_update(held.device_ids)
