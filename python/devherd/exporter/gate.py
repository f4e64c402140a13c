"""Who is let in, by passwords and client certificates of the web configuration, and the headers that it adds.

The kubelet's probes bring neither: /healthz and /readyz answer everybody. Unix sockets are guarded by their mode.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from devherd.config.web import Web
from devherd.exporter.http_message import Answer, Handler, Request, bare
from devherd.exporter.passwords import Passwords, TooManyGuessesError

OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})


class Gate:
    """Stands before another handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.guard(Web())

    def guard(self, web: Web) -> None:
        """Let in by this configuration from now on."""
        self._web = web
        self._passwords = Passwords(web.users)

    async def answer(self, request: Request) -> Answer:
        """Its answer, or why there is none for this client."""
        is_open = request.client.is_local or request.path in OPEN_TO_ALL
        refusal = None if is_open else await self._refusal(request)
        answer = refusal or await self._handler(request)
        return replace(answer, headers={**answer.headers, **self._web.headers})

    async def _refusal(self, request: Request) -> Answer | None:
        tls = self._web.tls
        if tls is not None and tls.client_auth_type != "NoClientCert":
            shown = request.client.certificate
            if not shown and tls.client_auth_type == "RequireAndVerifyClientCert":
                return _text(HTTPStatus.FORBIDDEN, "a client certificate is required\n")
            if shown and tls.client_allowed_sans and not set(tls.client_allowed_sans) & set(_names(shown)):
                return _text(HTTPStatus.FORBIDDEN, "this client certificate is not among client_allowed_sans\n")
        if not self._web.users:
            return None
        try:
            if await self._passwords.fits(request.headers.get("authorization", ""), request.client.address):
                return None
        except TooManyGuessesError:
            return bare(HTTPStatus.TOO_MANY_REQUESTS)
        return replace(bare(HTTPStatus.UNAUTHORIZED), headers={"WWW-Authenticate": 'Basic realm="devherd"'})


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Its subject alternative names: of hosts, addresses, mail and URIs."""
    for _, name in certificate.get("subjectAltName", ()):
        yield name


def _text(status: HTTPStatus, body: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", body.encode())
