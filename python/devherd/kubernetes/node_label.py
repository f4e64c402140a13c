"""One label of the node, as the API server has it."""

from devherd.inventory_json import host_name
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api, ApiError, Json


def label_of(api: Api, node: str, key: str, believed: str | None = None) -> str:
    """Its value; empty when the node has no such label. Raises ApiError.

    An API server answers from memory where that says what is `believed` already. Another value is asked for where it is
    kept: a server that has just started remembers older ones.
    <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>
    """
    path = f"/api/v1/nodes/{node}"
    if believed is not None and _value_in(api.get(f"{path}?resourceVersion=0", metadata_alone=True), key) == believed:
        return believed
    return _value_in(api.get(path, metadata_alone=True), key)


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


def _value_in(node: Json, key: str) -> str:
    return str(node["metadata"].get("labels", {}).get(key, ""))
