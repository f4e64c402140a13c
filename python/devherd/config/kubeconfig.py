"""Reads the access to an API server from a kubeconfig file, such as the kubelet's own.

Source: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>. What would change who is asked or believed,
and devherd does not do, is refused by name; other keys are other programs'.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from devherd.config import yaml_file
from devherd.config.api_access import ApiAccess
from devherd.config.errors import Location, Problem, config_error, echo
from devherd.config.yaml_file import decoded, parsed

SUBJECT = "kubeconfig"
_REFUSED = {
    "cluster": {
        "insecure-skip-tls-verify": "give the server's certificates in `certificate-authority`",
        "proxy-url": "name a server that is reached without a proxy",
    },
    "user": {
        "exec": "devherd runs no credential plugin: give `tokenFile`, or a client certificate as the kubelet has",
        "auth-provider": "give `tokenFile` or a client certificate",
        "username": "give `tokenFile` or a client certificate",
        "as": "give the credentials of that user",
    },
}


class _FaultError(Exception):
    def __init__(self, location: Location, what: str, cure: str) -> None:
        super().__init__(what)
        self.problem = Problem(location, what, cure)


def read(path: Path) -> ApiAccess:
    """The access of the file's current context. Raises ConfigError, UsageError if the file cannot be read.

    Paths in the file are relative to its directory.
    """
    source = str(path)
    text = decoded(source, lambda: yaml_file.read_text(path, f"{yaml_file.CURE} with --kubeconfig"), SUBJECT)
    content, positions = parsed(source, text, subject=SUBJECT, example="apiVersion: v1")
    try:
        return _access(path.absolute(), content)
    except _FaultError as fault:
        raise config_error(source, [fault.problem], positions, subject=SUBJECT) from None


def _access(path: Path, content: Mapping[str, Any]) -> ApiAccess:
    name = content.get("current-context")
    if not isinstance(name, str) or not name:
        raise _FaultError(("current-context",), "no context is chosen", "name one: `kubectl config use-context NAME`")
    context, at = _named(content, "contexts", "context", name, ("current-context",))
    cluster, at_cluster = _named(content, "clusters", "cluster", context.get("cluster"), (*at, "cluster"))
    user, at_user = _named(content, "users", "user", context.get("user"), (*at, "user"))
    _refuse(cluster, "cluster", at_cluster)
    _refuse(user, "user", at_user)
    server = urlsplit(str(cluster.get("server", "")))
    if server.scheme != "https" or not server.hostname:
        what = f"{echo(cluster.get('server'))} is not the address of an API server"
        raise _FaultError((*at_cluster, "server"), what, "write `https://HOST:PORT`")
    access = ApiAccess(
        host=server.hostname,
        port=_port(server.netloc, lambda: server.port, (*at_cluster, "server")),
        path=server.path.rstrip("/"),
        server_name=str(cluster.get("tls-server-name", "")),
        ca_file=_file(path, cluster, "certificate-authority"),
        ca=_decoded(cluster, "certificate-authority-data", at_cluster),
        token_file=_file(path, user, "tokenFile"),
        token=str(user.get("token") or ""),
        certificate_file=_file(path, user, "client-certificate"),
        certificate=_decoded(user, "client-certificate-data", at_user),
        key_file=_file(path, user, "client-key"),
        key=_decoded(user, "client-key-data", at_user),
        own_namespace=str(context.get("namespace") or ""),
        kubeconfig=path,
    )
    has_certificate = bool(access.certificate_file or access.certificate)
    if not (access.token or access.token_file or has_certificate):
        raise _FaultError(at_user, "the user has no credentials", "give `tokenFile` or a client certificate")
    if has_certificate and not (access.key_file or access.key):
        raise _FaultError(at_user, "the client certificate has no key", "give `client-key` or `client-key-data`")
    return access


def _named(
    content: Mapping[str, Any], collection: str, kind: str, name: object, asked_at: Location
) -> tuple[Mapping[str, Any], Location]:
    """The entry of this name in a list of the file, and its place."""
    entries = content.get(collection)
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
            return entry[kind], (collection, number, kind)
    raise _FaultError(asked_at, f"`{collection}` has no entry {echo(name)}", f"name one of `{collection}`, or add it")


def _refuse(given: Mapping[str, Any], kind: str, at: Location) -> None:
    for key, cure in _REFUSED[kind].items():
        if given.get(key):
            raise _FaultError((*at, key), f"`{key}` is not supported by devherd", cure)


def _port(address: str, port: Callable[[], int | None], at: Location) -> int:
    try:
        return port() or 443
    except ValueError:
        raise _FaultError(at, f"{echo(address)} has no valid port", "write `https://HOST:PORT`") from None


def _file(kubeconfig: Path, given: Mapping[str, Any], key: str) -> Path | None:
    return kubeconfig.parent / str(given[key]) if given.get(key) else None


def _decoded(given: Mapping[str, Any], key: str, at: Location) -> str:
    """The text of a `…-data` key. A bad value is never echoed: it may be a secret."""
    try:
        return base64.b64decode(str(given.get(key) or ""), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise _FaultError((*at, key), "the value is not a PEM text in base64", "write it as kubectl does") from None
