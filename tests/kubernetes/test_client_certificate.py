"""An API server that knows its clients by their certificates, as it knows the kubelet."""

import contextlib
import http.server
import json
import shutil
import ssl
import threading
from dataclasses import replace

import pytest
from certificates import Authority
from not_tested import not_tested

from devherd.api_server import Api, ApiError
from devherd.config.api_access import ApiAccess

NODE = {"metadata": {"name": "node-1"}}


class Knowing:
    """Takes clients whose certificate its authority has signed; `seen`: the name in each call's certificate."""

    def __init__(self, directory) -> None:
        openssl = shutil.which("openssl") or not_tested("no openssl on PATH")
        self.authority = Authority(openssl, directory)
        self.seen: list[str] = []
        self.paths: list[str] = []
        self.refuses = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.authority.sign("kubernetes", "DNS:kubernetes"))
        context.load_verify_locations(self.authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def access(self, **more) -> ApiAccess:
        ca = self.authority.certificate.read_text()
        return ApiAccess(host="127.0.0.1", port=self.port, server_name="kubernetes", ca=ca, **more)

    def _handler(api):  # noqa: N805 - the handler has a self of its own
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                subject = dict(part[0] for part in self.connection.getpeercert()["subject"])
                api.seen.append(subject["commonName"])
                api.paths.append(self.path)
                assert "Authorization" not in self.headers
                answer = json.dumps({"message": "expired"} if api.refuses else NODE).encode()
                self.send_response(401 if api.refuses else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                """Nothing."""

        return Handler


@pytest.fixture
def server(tmp_path):
    made = Knowing(tmp_path)
    yield made
    made.close()


def test_a_client_is_known_by_its_certificate_from_files_or_from_the_kubeconfig_itself(server):
    """What the kubeconfig has inside is on no disk. No token is sent; a proxy's path comes first."""
    certificate, key = server.authority.sign("system-node", "DNS:node")
    by_files = server.access(certificate_file=certificate, key_file=key)
    inside = server.access(certificate=certificate.read_text(), key=key.read_text(), path="/k8s/clusters/c-1")

    for access in (by_files, inside):
        with contextlib.closing(Api(access)) as api:
            assert api.get("/api/v1/nodes/node-1") == NODE

    assert server.seen == ["system-node", "system-node"]
    assert server.paths == ["/api/v1/nodes/node-1", "/k8s/clusters/c-1/api/v1/nodes/node-1"]


def test_a_renewed_certificate_is_shown_after_a_refusal(server, tmp_path):
    """The kubelet replaces the link to its certificate; a connection goes on with the one that it began with."""
    current = tmp_path / "current.pem"
    for name in ("first", "second"):
        certificate, key = server.authority.sign(name, "DNS:node")
        (tmp_path / f"{name}.pem").write_text(certificate.read_text() + key.read_text())
    current.symlink_to("first.pem")
    with contextlib.closing(Api(server.access(certificate_file=current, key_file=current))) as api:
        api.get("/api/v1/nodes/node-1")
        current.unlink()
        current.symlink_to("second.pem")
        server.refuses = True
        with pytest.raises(ApiError, match="401: expired"):
            api.get("/api/v1/nodes/node-1")
        server.refuses = False
        api.get("/api/v1/nodes/node-1")

    assert server.seen == ["first", "first", "second", "second"]


def test_a_certificate_that_is_not_there_is_an_error_without_a_status(server, tmp_path):
    """The process tries again; nothing else is harmed."""
    access = server.access(certificate_file=tmp_path / "none.pem", key_file=tmp_path / "none.pem")
    with contextlib.closing(Api(access)) as api, pytest.raises(ApiError) as caught:
        api.get("/api/v1/nodes/node-1")

    assert caught.value.status == 0
    with contextlib.closing(Api(replace(access, certificate="no PEM", key="none"))) as api, pytest.raises(ApiError):
        api.get("/api/v1/nodes/node-1")
