"""Which extended-resource names the kubelet accepts: its own checks, with a reason for each refusal.

Source: `IsExtendedResourceName` in k8s.io/kubernetes pkg/apis/core/v1/helper and k8s.io/apimachinery's IsQualifiedName.
"""

import re

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX_LIMIT = 244  # the kubelet checks `requests.<prefix>` against 253
_NAME_LIMIT = 63


def is_valid(name: str) -> bool:
    """Whether the kubelet lets a device plugin register this name."""
    return explain(name) is None


def explain(name: str) -> str | None:
    """Why the kubelet refuses a name, None when it accepts it."""
    prefix, slash, last = name.partition("/")
    if not slash:
        return f"`{name}` is not a resource name: it needs a domain and a `/`, like `example.com/gpu`"
    if "kubernetes.io/" in name:
        return f"`{name}` is not a resource name: domains ending in `kubernetes.io` are the cluster's own"
    if name.startswith("requests."):
        return f"`{name}` is not a resource name: it must not begin with `requests.`"
    if len(prefix) > _PREFIX_LIMIT or not _PREFIX.fullmatch(prefix):
        return (
            f"`{name}` is not a resource name: `{prefix}` is not a domain of at most {_PREFIX_LIMIT} lower-case"
            " letters, digits, `-` and `.`"
        )
    if not 0 < len(last) <= _NAME_LIMIT or not _NAME.fullmatch(last):
        return (
            f"`{name}` is not a resource name: `{last}` is not 1 to {_NAME_LIMIT} letters, digits, `-`, `_` or `.`"
            " that begin and end with a letter or digit"
        )
    return None
