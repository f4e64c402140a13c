"""What happens before a container starts, at every start: PreStartContainer, and devices that were missed before."""

from devherd_sim.kubelet.admission import Admission
from devherd_sim.kubelet.allocation import AdmissionError, StartError, answer
from devherd_sim.kubelet.endpoint import PluginError
from devherd_sim.kubelet.node import Node
from devherd_sim.kubelet.pod import Container

Answer = dict[str, object]


async def start(node: Node, admission: Admission, container: Container) -> Answer:
    """What the runtime gives to a container of an active pod. Raises StartError; the kubelet tries again.

    A pod that was admitted while a resource was unknown gets its devices now, if the plugin has come meanwhile.
    """
    pod = node.pods.get(container.uid)
    spec = pod.spec(container.name) if pod else None
    if pod is None or spec is None:
        raise StartError(f"no pod of the UID {container.uid} has a container {container.name}")
    resources = [resource for resource, count in spec.limits.items() if count and node.is_known(resource)]
    try:
        for resource in resources:
            await _prepare(node, container, resource)
        if any(node.ledger.held(container, resource) is None for resource in resources):
            await admission.admit_container(pod, spec)
    except (PluginError, AdmissionError) as error:
        raise StartError(str(error)) from error
    node.pods.started(container)
    return answer(node.ledger.of(container))


async def _prepare(node: Node, container: Container, resource: str) -> None:
    """Call PreStartContainer where the plugin wants it. Raises StartError and PluginError."""
    endpoint = node.endpoint(resource)
    if endpoint is None and resource not in node.devices:
        raise StartError(f"endpoint not found in cache for a registered resource: {resource}")
    if endpoint is None or not endpoint.options.pre_start_required:
        return
    held = node.ledger.held(container, resource)
    if held is None:
        raise StartError(
            f"no devices found allocated in local cache for pod {container.uid}, container {container.name}, "
            f"resource {resource}"
        )
    await endpoint.pre_start(held.device_ids)
    node.events.record("pre-started", resource, **container.labels())
