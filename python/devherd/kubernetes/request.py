"""What process `kubernetes:events` is to do: the request that the scanner writes for it."""

import json
from dataclasses import asdict, dataclass

from devherd.config.resolved import KubernetesOptions
from devherd.kubernetes.access import Access

SUFFIX = ".api"
REQUEST = f"events{SUFFIX}"
"""Its file in `<run-dir>/requests`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Beside Events."""

    node_condition: bool = False


def requests_for(options: KubernetesOptions) -> dict[str, str]:
    """By file: empty where nobody wants it, or there is no API server that this pod may talk to."""
    if not options.events or Access.of_this_pod() is None:
        return {}
    return {REQUEST: json.dumps(asdict(Request(node_condition=options.node_condition)))}


def request_in(content: bytes) -> Request:
    """What a request asks for; nothing beside Events where it cannot be read."""
    try:
        return Request(**json.loads(content))
    except (ValueError, TypeError):
        return Request()
