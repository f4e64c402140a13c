"""One label of the node, as the API server has it."""

from devherd.inventory_json import host_name
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError


def label_of(api: Api, node: str, key: str) -> str:
    """Its value; empty when the node has no such label. Raises ApiError."""
    metadata = api.get(f"/api/v1/nodes/{node}?resourceVersion=0", metadata_alone=True)["metadata"]
    return str(metadata.get("labels", {}).get(key, ""))


def label_at_start(key: str) -> str | None:
    """Its value, asked for once; None while nobody can tell. Takes seconds at most."""
    access = Access.of_this_pod()
    if access is None:
        return None
    api = Api(access)
    try:
        return label_of(api, host_name(), key)
    except ApiError:  # the process that goes on asking says why
        return None
    finally:
        api.close()
