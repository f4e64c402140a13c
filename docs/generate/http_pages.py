"""docs/http.md: what /api/v1/openapi.json says of the pages, but for keys of JSON, and how they are protected."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devherd.config.web_config import TlsSection, WebConfig
from devherd.exporter import main as exporter
from devherd.exporter import server

NAME = "http"
"""A module of this name would take the place of Python's own."""

HEAD = """\
# HTTP

*Generated from `/api/v1/openapi.json` by `make docs-pages`.*

Status page, metrics, probes and inventory of a node. Only GET and HEAD are answered: nothing can be changed over HTTP.
[openapi.json](../python/devherd/exporter/openapi.json), which devherd serves, has every key of the JSON.

```sh
curl http://127.0.0.1:9478/readyz
curl 'http://127.0.0.1:9478/api/v1/inventory?resource=nvidia.com/*'
curl --unix-socket /run/devherd-http/http.sock http://devherd/metrics
```

`--listen` sets the addresses: `ADDRESS:PORT` (`:9478` for all, `[::1]:9478` for IPv6), `unix:/PATH` for a Unix socket,
or several of these, separated by commas; empty switches HTTP off.
[Protect them](#tls-passwords-and-client-certificates).
"""

STATUSES = """\
Other paths get 404, other methods 405, invalid requests 400, 413, 431 or 501. Too many clients at once get 503.
"""

PROTECTION = """\
## TLS, passwords and client certificates

`--web-config FILE` (`web_config` in the configuration, `DEVHERD_WEB_CONFIG`) names a file in the
[format of Prometheus exporters](https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md).
Paths in it may be relative to its directory.

```yaml
tls_server_config:
  cert_file: tls.crt
  key_file: tls.key
  client_ca_file: ca.crt                        # with client_auth_type alone
  client_auth_type: RequireAndVerifyClientCert  # or VerifyClientCertIfGiven; default: NoClientCert
  client_allowed_sans: [prometheus]
  min_version: TLS13                            # default: TLS12
http_server_config:
  headers: {Strict-Transport-Security: max-age=31536000}
basic_auth_users:
  prometheus: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG   # htpasswd -nBC 10 prometheus
```

* The file is read at the start and at each reload; if it is invalid, the previous one stays in force. New certificates
  are used within a second, without a reload.
* Without a usable certificate TCP is not served. A process that runs keeps the last good one.
* `/healthz` and `/readyz` need neither password nor certificate, for the kubelet's probes. Other requests without a
  required certificate get 403.
* Unix sockets have neither TLS nor a password. Their mode is 0660; their group is that of their directory if it has the
  setgid bit. Use a separate directory: the exporter may remove files in it.
* A correct password is remembered; one password is checked at a time for each address.
"""

LIMITS = """\
## Limits
"""


def page() -> str:
    """The whole page."""
    openapi = json.loads(Path(exporter.__file__).with_name("openapi.json").read_text("utf-8"))
    parts = [HEAD, STATUSES]
    for path, operations in openapi["paths"].items():
        parts += _operation(path, operations["get"])
    parts += [PROTECTION, _not_supported(), LIMITS, _limits()]
    return "\n".join(parts)


def _operation(path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{path}`\n"
    yield f"{operation['summary']}. {operation.get('description', '')}\n"
    if parameters := operation.get("parameters"):
        yield "".join(f"* `?{each['name']}=`: {each['description']}\n" for each in parameters)
    answers = {status: answer for status, answer in operation["responses"].items() if not _is_told_once(answer)}
    yield "".join(f"* {status}: {_when(each)}\n" for status, each in answers.items())


def _is_told_once(answer: Mapping[str, Any]) -> bool:
    """Whether the head of the page has it, for every path."""
    return "$ref" in answer or answer["description"].startswith("Too many clients")


def _when(answer: Mapping[str, Any]) -> str:
    """What a status means, and the types of its content; an answer of one line is shown with it."""
    content = answer.get("content", {})
    short = [each["example"].strip() for each in content.values() if isinstance(each.get("example"), str)]
    said = [answer["description"].rstrip("."), *(f": `{text}`" for text in short if "\n" not in text)]
    return "".join(said) + (f" ({', '.join(f'`{kind}`' for kind in content)})" if content else "")


def _not_supported() -> str:
    """What the format has, and devherd refuses."""
    refused = [
        f"`{name}`"
        for section in (WebConfig, TlsSection)
        for name, field in section.model_fields.items()
        if field.annotation is Any
    ]
    return (
        f"Of the format, {', '.join(refused)}, `http2: true`, `RequestClientCert`, `RequireAnyClientCert`, `TLS10` and"
        " `TLS11` are not supported, and are refused.\n"
    )


def _limits() -> str:
    most, of_a_client = server.MOST_CONNECTIONS, server.MOST_OF_A_CLIENT
    rows = {
        "connections": f"{most}, and {of_a_client} from one address; beyond that the longest idle one is closed",
        "TLS handshakes at once": (
            f"{server.MOST_HANDSHAKES}, and {server.MOST_HANDSHAKES_OF_A_CLIENT} from one address; "
            f"each may take {server.HANDSHAKE_SECONDS:.0f} s"
        ),
        "a request": f"{server.REQUEST_SECONDS:.0f} s",
        "reading an answer": f"{server.ANSWER_SECONDS:.0f} s",
        "between two requests": f"{server.IDLE_SECONDS:.0f} s",
        "unread answers": f"{server.MOST_UNREAD_BYTES >> 20} MiB in total; then the slowest connection is closed",
    }
    return "".join(f"* {what}: {limit}\n" for what, limit in rows.items())
