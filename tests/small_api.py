"""An API server that keeps what it is sent, and fails as it is told. TLS, with a certificate made for the test."""

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

from not_tested import not_tested

from devherd.config.api_access import ApiAccess

_CLOSED_SECONDS = 0.01
"""After which `close` is noticed."""


class SmallApi:
    """`directory` is what a pod finds at its service account's place."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[dict] = []
        self.patches: list[tuple[str, dict]] = []
        self.refusal: tuple[int, str] | None = None
        """Status and message of each answer, instead of what was asked."""
        self.retry_after = ""
        """The header of each answer; empty without it."""
        self.raw = b""
        """What each answer contains, instead of an object: a proxy's words."""
        self.is_closing = False
        """Whether it closes each connection after its answer, without saying so."""
        self.loses_answers = False
        """Whether it does what it is asked, and closes the connection without an answer."""
        self.tokens: list[str] = []
        self.calls: list[tuple[str, str, str]] = []
        """Method, path and accepted kind of each call."""
        self.connections = 0
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "token").write_text("first")
        self._make_certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "ca.crt", directory / "key")
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(_CLOSED_SECONDS,), daemon=True).start()

    @property
    def access(self) -> ApiAccess:
        """That of a pod."""
        return ApiAccess.of_service_account("127.0.0.1", self.port, self.directory)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def state(self) -> object:
        """What a test that waits in vain shows."""
        return self.events

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        if self.refusal:
            return self.refusal[0], {"kind": "Status", "message": self.refusal[1]}
        if method == "GET":
            *_, namespace, _, name = path.split("/")
            return 200, {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-of-{name}"}}
        if method == "POST":
            self.events.append(body)
            return 201, body
        self.patches.append((path, body))
        return 200, body

    def _make_certificate(self) -> None:
        openssl = shutil.which("openssl") or not_tested("no openssl on PATH")
        options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 1 -subj /CN=api"
        options += " -addext subjectAltName=IP:127.0.0.1"
        files = ["-keyout", self.directory / "key", "-out", self.directory / "ca.crt"]
        subprocess.run([openssl, "req", *options.split(), *files], check=True, capture_output=True)

    def _handler(api) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                api.connections += 1
                super().setup()

            def do_GET(self) -> None:
                api.calls.append((self.command, self.path, self.headers["Accept"]))
                api.tokens.append(self.headers["Authorization"].removeprefix("Bearer "))
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, said = api.answer(self.command, self.path, body)
                if api.loses_answers:
                    self.close_connection = True
                    return
                content = api.raw or json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if api.retry_after:
                    self.send_header("Retry-After", api.retry_after)
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = api.is_closing

            do_POST = do_GET  # noqa: N815 - the name that the server looks for
            do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - likewise

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler
