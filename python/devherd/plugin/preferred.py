"""Which of the free devices a container had best be given: the resource's topology, kept ready for the scan core."""

from devherd._native import Preference
from devherd.proto import spool_pb2

_KINDS = {spool_pb2.ALIGNED: "aligned", spool_pb2.DISTRIBUTED: "distributed"}


def preference(resource: spool_pb2.Resource) -> Preference:
    """Answers what the kubelet asks; packed where nothing is preferred, for then it has no reason to ask."""
    kind = _KINDS.get(resource.preferred, "packed")
    return Preference(
        kind,
        [
            (
                device.id,
                device.physical_id,
                device.card,
                device.numa_nodes,
                not device.reasons,
                dict(device.distances) if kind == "aligned" else {},
            )
            for device in resource.devices
        ],
    )
