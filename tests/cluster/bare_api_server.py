"""etcd and kube-apiserver on free ports, without a private machine: enough for what only talks to the API server."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import time
from pathlib import Path

from devherd.config.api_access import ApiAccess

_TOKEN = "a-token"


def free_ports(number):
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


class BareApiServer:
    """Everything is allowed to its one user. `directory` has its files and logs."""

    def __init__(self, program: Path, directory: Path, *options: str) -> None:
        self._program, self._directory, self._options = program, directory, options
        self._processes: dict[str, subprocess.Popen] = {}
        client, peer, self.port = free_ports(3)
        self._etcd = f"http://127.0.0.1:{client}"
        (directory / "tokens.csv").write_text(f'{_TOKEN},admin,1,"system:masters"\n')
        (directory / "token").write_text(_TOKEN)
        self._start(
            "etcd",
            f"--data-dir={directory}/etcd",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self.start_server()

    @property
    def access(self) -> ApiAccess:
        """That of its user."""
        certificate = self._directory / "apiserver/apiserver.crt"
        return ApiAccess(host="127.0.0.1", port=self.port, ca_file=certificate, token_file=self._directory / "token")

    def start_server(self) -> None:
        """The API server; it is back when it is ready."""
        key = f"{self._directory}/apiserver/apiserver.key"
        self._start(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._directory}/apiserver",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.98.0.0/24",
            f"--token-auth-file={self._directory}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--enable-priority-and-fairness=false",
            *self._options,
        )
        deadline = time.monotonic() + 60
        while not self._is_ready():
            assert time.monotonic() < deadline, (self._directory / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.1)

    def stop_server(self) -> None:
        """As it ends; etcd stays."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def ask(self, path, method="GET", body=None, agent="kubectl", kind="application/json"):
        """Status and content."""
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=10)
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind, "User-Agent": agent}
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("/readyz")[0] == 200
        return False

    def _start(self, name, *options):
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen([self._program, name, *options], stdout=log, stderr=log)
