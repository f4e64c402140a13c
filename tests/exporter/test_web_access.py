"""Who may read the exporter's pages: TLS, passwords and client certificates, as curl and a silent client meet them."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import bcrypt
import pytest
from certificates import Authority
from descriptors import descriptors
from exporter_instance import eventually
from not_tested import not_tested

from devherd import spool
from devherd.config.web import Tls, Web
from devherd.exporter.encryption import Encryption
from devherd.exporter.server import MOST_HANDSHAKES
from devherd.proto.spool_pb2 import Address, Addresses
from devherd.settings import Settings

PASSWORD = "correct horse"
USERS = {"prometheus": bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4, prefix=b"2a")).decode()}


@pytest.fixture
def authority(tool, tmp_path):
    """Signs certificates."""
    return Authority(tool("openssl"), tmp_path / "certificates")


@pytest.fixture
def tls(authority):
    """A server's certificate for 127.0.0.1."""
    certificate, key = authority.sign("server", "IP:127.0.0.1,IP:127.0.0.2")
    return Tls(cert_file=certificate, key_file=key)


@pytest.fixture
def curl(tool, authority):
    """`curl(url, options…)`: status and body; status 0 where the connection fails."""
    program = tool("curl")

    def ask(url, *options):
        command = [program, "--silent", "--show-error", "--max-time", "20", "--cacert", str(authority.certificate)]
        command += ["--write-out", "\n%{http_code}", url, *map(str, options)]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        body, _, status = outcome.stdout.rpartition("\n")
        return int(status or 0), body

    return ask


def serving(make_instance, web, listen="127.0.0.1:0"):
    """A running exporter that is protected so."""
    instance = make_instance(listen=listen)
    instance.configure(listen, web)
    return instance.start()


def reload(instance):
    """SIGHUP."""
    os.kill(instance.exporter_pid, signal.SIGHUP)


def test_pages_are_served_by_tls(make_instance, curl, tls):
    """And by nothing else."""
    instance = serving(make_instance, Web(tls=tls))
    assert instance.url.startswith("https://127.0.0.1:")
    status, body = curl(f"{instance.url}/metrics")
    assert (status, body[:6]) == (200, "# HELP")
    assert curl(instance.url.replace("https", "http"))[0] == 0


def test_versions_of_tls_are_limited(make_instance, curl, tls):
    """`min_version: TLS13`."""
    tls13 = Tls(cert_file=tls.cert_file, key_file=tls.key_file, min_version="TLS13")
    url = serving(make_instance, Web(tls=tls13)).url
    assert curl(f"{url}/healthz", "--tls-max", "1.2")[0] == 0
    assert curl(f"{url}/healthz", "--tlsv1.3")[0] == 503


def test_a_new_certificate_is_served_without_a_reload(make_instance, curl, tls, authority):
    """As cert-manager and certbot put it in place; one that does not fit its key leaves the old one in use."""
    instance = serving(make_instance, Web(tls=tls))
    assert curl(f"{instance.url}/healthz")[0] == 503
    other, other_key = authority.sign("other", "DNS:localhost")
    other.replace(tls.cert_file)
    eventually(lambda: "server.crt: key values mismatch; the old ones stay in use" in instance.log, "it is said")
    assert curl(f"{instance.url}/healthz")[0] == 503
    other_key.replace(tls.key_file)
    eventually(lambda: "serving with the new certificate" in instance.log, "it is taken")
    port = instance.url.rpartition(":")[2]
    assert curl(f"https://127.0.0.1:{port}/healthz")[0] == 0
    assert curl(f"https://localhost:{port}/healthz", "--ipv4")[0] == 503


def test_without_its_certificate_nothing_is_served_until_it_is_there(make_instance, curl, tls):
    """Never the pages without what is to protect them."""
    away = tls.key_file.rename(tls.key_file.with_suffix(".away"))
    instance = serving(make_instance, Web(tls=tls))
    said = f"cannot use the certificates: {tls.key_file}: No such file or directory"
    eventually(lambda: said in instance.log, "it is said")
    time.sleep(1.5)
    assert "serving" not in instance.log.replace("nothing is served", "")
    away.rename(tls.key_file)
    assert curl(f"{instance.url}/healthz")[0] == 503
    assert instance.log.count("cannot use the certificates") == 1


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_passphrase(make_instance, tls, tool):
    """There is no terminal to ask at."""
    encrypted = tls.key_file.with_suffix(".encrypted")
    command = [tool("openssl"), "ec", "-in", tls.key_file, "-aes256", "-passout", "pass:secret", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    encrypted.replace(tls.key_file)
    instance = serving(make_instance, Web(tls=tls))
    eventually(lambda: "the key is encrypted; keep it without a passphrase" in instance.log, "it is said")


@pytest.mark.parametrize(
    ("user", "status"),
    [
        ("prometheus:correct horse", 200),
        ("prometheus:wrong horse", 401),
        ("nobody:correct horse", 401),
        ("prometheus:", 401),
    ],
)
def test_a_password_is_asked_for(make_instance, curl, tls, user, status):
    """Each page wants it."""
    url = serving(make_instance, Web(tls=tls, users=USERS)).url
    assert curl(f"{url}/metrics", "--user", user)[0] == status
    assert curl(f"{url}/", "--user", user)[0] == status
    assert curl(f"{url}/no-such-page", "--user", user)[0] == (404 if status == 200 else 401)


def test_who_shows_no_password_is_asked_for_it(make_instance):
    """So a browser shows its dialogue; nonsense in the header is not a password either."""
    instance = serving(make_instance, Web(users=USERS))
    for nonsense in (None, "Bearer abc", "Basic %%%", "Basic YQ==", "Basic \xe9"):
        status, headers, _ = instance.ask("/metrics", **({"Authorization": nonsense} if nonsense else {}))
        assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="devherd"')


def test_probes_need_neither_password_nor_certificate(make_instance, curl, tls, authority):
    """The kubelet cannot bring them; it takes any server certificate."""
    web = Web(tls=demanding(tls, authority), users=USERS)
    url = serving(make_instance, web).url
    assert curl(f"{url}/healthz", "--insecure") == (503, "supervisor: children.pb is missing\n")
    assert curl(f"{url}/readyz", "--insecure")[0] == 503


def demanding(tls, authority, *names):
    """TLS that wants a client certificate."""
    return Tls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        client_ca_file=authority.certificate,
        client_auth_type="RequireAndVerifyClientCert",
        client_allowed_sans=list(names),
    )


def shown(pair):
    """Options of curl for a client certificate."""
    return "--cert", pair[0], "--key", pair[1]


@pytest.fixture
def stranger(tool, tmp_path):
    """A client certificate of another authority."""
    return Authority(tool("openssl"), tmp_path / "strangers").sign("stranger", "DNS:prometheus")


def test_a_client_certificate_is_asked_for(make_instance, curl, tls, authority, stranger):
    """One of the authority's: none, or another's, does not get a page."""
    url = serving(make_instance, Web(tls=demanding(tls, authority))).url
    assert curl(f"{url}/metrics", *shown(authority.sign("client", "DNS:prometheus")))[0] == 200
    assert curl(f"{url}/metrics") == (403, "a client certificate is required\n")
    assert curl(f"{url}/metrics", *shown(stranger))[0] == 0


def test_a_client_certificate_needs_one_of_the_allowed_names(make_instance, curl, tls, authority):
    """Names, addresses and URIs are compared as a whole."""
    url = serving(make_instance, Web(tls=demanding(tls, authority, "prometheus", "spiffe://cluster/scraper"))).url
    for names, status in (
        ("DNS:prometheus", 200),
        ("URI:spiffe://cluster/scraper", 200),
        ("DNS:prometheus.example,IP:10.0.0.1", 403),
    ):
        assert curl(f"{url}/metrics", *shown(authority.sign("client", names)))[0] == status


def test_a_certificate_may_be_optional(make_instance, curl, tls, authority):
    """`VerifyClientCertIfGiven`: then the allowed names are for those who show one."""
    optional = Tls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        client_ca_file=authority.certificate,
        client_auth_type="VerifyClientCertIfGiven",
        client_allowed_sans=["prometheus"],
    )
    url = serving(make_instance, Web(tls=optional)).url
    assert curl(f"{url}/metrics")[0] == 200
    assert curl(f"{url}/metrics", *shown(authority.sign("client", "DNS:other")))[0] == 403


def test_headers_of_the_configuration_are_in_every_answer(make_instance):
    """In refusals too; they stand in place of devherd's own."""
    headers = {"Strict-Transport-Security": "max-age=60", "Content-Security-Policy": "default-src 'self'"}
    instance = serving(make_instance, Web(headers=headers, users=USERS))
    for path in ("/healthz", "/metrics"):
        answered = instance.ask(path)[1]
        assert {name: answered.get_all(name) for name in headers} == {name: [value] for name, value in headers.items()}


def test_a_reload_that_protects_the_pages_ends_who_was_let_in_before(make_instance, curl, tls):
    """A connection that is kept open does not keep its right to read."""
    instance = make_instance().start()
    host, port = re.search(r"http://(.*):(\d+)", instance.url).groups()
    with socket.create_connection((host, int(port)), timeout=20) as kept:
        kept.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert kept.recv(100)
        instance.configure("127.0.0.1:0", Web(tls=tls, users=USERS))
        reload(instance)
        eventually(lambda: instance.url.startswith("https"), "it serves by TLS")
        while kept.recv(1000):
            pass
    assert curl(f"{instance.url}/metrics")[0] == 401
    assert curl(f"{instance.url}/metrics", "--user", f"prometheus:{PASSWORD}")[0] == 200


def test_clients_that_begin_tls_and_say_no_more_keep_nobody_waiting(make_instance, curl, tls):
    """A handshake that is never finished is a connection as any other: the oldest of a client goes for a newcomer."""
    instance = serving(make_instance, Web(tls=tls))
    port = int(instance.url.rpartition(":")[2])
    silent = []
    try:
        for _ in range(300):
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            silent[-1].sendall(b"\x16\x03\x01")
        assert curl(f"{instance.url}/healthz")[0] == 503
        assert len(list(Path(f"/proc/{instance.exporter_pid}/fd").iterdir())) < 100
    finally:
        for each in silent:
            each.close()
    assert "Traceback" not in instance.log


def half_open(instance, addresses, of_each=1):
    """Connections that begin TLS and say no more, from these addresses."""
    port = int(instance.url.rpartition(":")[2])
    opened = []
    for address in addresses:
        for _ in range(of_each):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(address, 0)))
            opened[-1].sendall(b"\x16\x03\x01")
    return opened


def is_ended(connection):
    """Once the other side has ended it; with a reset, where it had not read what was sent."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def own_bytes(pid):
    """Memory that a process does not share, in bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Private_Dirty: +(\d+) kB$", rollup, re.MULTILINE)[1])


def test_handshakes_that_are_never_finished_are_few_and_small(make_instance, curl, tls):
    """200 of them had 59 MB; whoever begins one more takes the place of the one that waits longest."""
    instance = serving(make_instance, Web(tls=tls))
    assert curl(f"{instance.url}/healthz")[0] == 503
    before = own_bytes(instance.exporter_pid)
    files = Path(f"/proc/{instance.exporter_pid}/fd")
    idle = len(list(files.iterdir()))
    opened = half_open(instance, [f"127.0.0.{number}" for number in range(2, 22)], of_each=10)
    try:
        assert all(map(is_ended, opened[:-MOST_HANDSHAKES]))
        assert len(list(files.iterdir())) <= idle + MOST_HANDSHAKES
        assert own_bytes(instance.exporter_pid) - before < 15 << 20
        assert curl(f"{instance.url}/healthz")[0] == 503
    finally:
        for each in opened:
            each.close()


def test_a_handshake_has_a_time_limit(make_instance, tls):
    """Also where nobody else wants its place."""
    (silent,) = half_open(serving(make_instance, Web(tls=tls)), ["127.0.0.1"])
    with silent:
        assert is_ended(silent)


def test_a_reload_that_ends_a_handshake_logs_no_traceback(make_instance, curl, tls):
    """Two were logged for each that was open."""
    instance = serving(make_instance, Web(tls=tls))
    first = instance.url
    opened = half_open(instance, ["127.0.0.1"], of_each=3)
    assert curl(f"{first}/healthz")[0] == 503
    tls13 = Tls(cert_file=tls.cert_file, key_file=tls.key_file, min_version="TLS13")
    instance.configure("127.0.0.1:0", Web(tls=tls13))
    reload(instance)
    for each in opened:
        with each:
            assert is_ended(each)
    eventually(lambda: instance.url != first, "it serves with what was reloaded")
    assert curl(f"{instance.url}/healthz")[0] == 503
    assert "Traceback" not in instance.log


def test_an_address_that_cannot_be_bound_is_said_once_while_the_certificate_is_unusable(make_instance, curl, tls):
    """It was said each second. The one becomes right, and is served; the other still waits."""
    away = tls.key_file.rename(tls.key_file.with_suffix(".away"))
    instance = make_instance()
    path = instance.run_dir / "http.sock"
    path.touch()
    instance.configure(f"127.0.0.1:0,unix:{path}", Web(tls=tls))
    instance.start()
    said = f"cannot listen on unix:{path}: Address already in use; trying again"
    eventually(lambda: said in instance.log, "it is said")
    time.sleep(3)
    assert instance.log.count("cannot listen on") == 1
    away.rename(tls.key_file)
    assert curl(f"{instance.url}/healthz")[0] == 503
    path.unlink()
    eventually(lambda: f"serving unix:{path}" in instance.log, "it serves there, too")
    assert instance.log.count("cannot listen on") == 1


def test_the_run_directory_says_where_nothing_is_served_and_why_until_it_is(make_instance, tls):
    """`devherd status` and the page showed the address as if it were served: a taken port, a key that is not there."""
    away = tls.key_file.rename(tls.key_file.with_suffix(".away"))
    instance = make_instance()
    told = Settings(run_dir=instance.run_dir).served_file
    path = instance.run_dir / "http.sock"
    path.touch()

    def addresses():
        return list(spool.read_or_empty(told, Addresses).addresses)

    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        instance.configure(f"{taken},unix:{path}", Web(tls=tls))
        instance.start()
        refusals = {each.address: (each.refusal, each.cure) for each in eventually(addresses, "the file is there")}
        assert refusals == {
            taken: (
                f"the certificates cannot be used: {tls.key_file}: No such file or directory",
                "correct the file that it names",
            ),
            f"unix:{path}": (
                "Address already in use",
                "remove what is there, or name another address with `listen`",
            ),
        }
        away.rename(tls.key_file)
        path.unlink()
        cure = "end the program that listens there (`ss -lptn` names it), or name another address with `listen`"
        still = [
            Address(address=taken, refusal="Address already in use", cure=cure),
            Address(address=f"unix:{path}"),
        ]
        eventually(lambda: addresses() == still, "the one is served, and the other has another reason")
    told.unlink()
    both = [Address(address=taken), Address(address=f"unix:{path}")]
    eventually(lambda: addresses() == both, "both are served, and a file that somebody removes is written again")


def test_a_unix_socket_needs_no_password(make_instance, curl, tls):
    """Its mode is its guard, and the directory; TLS is for networks."""
    instance = make_instance()
    path = instance.run_dir / "http.sock"
    instance.configure(f"127.0.0.1:0,unix:{path}", Web(tls=tls, users=USERS))
    instance.start()
    eventually(lambda: f"serving unix:{path}" in instance.log, "it serves at the path")
    assert path.stat().st_mode & 0o777 == 0o660
    assert curl("http://devherd/metrics", "--unix-socket", path)[0] == 200
    assert curl(f"{instance.url}/metrics")[0] == 401


def test_a_unix_socket_that_was_left_behind_is_taken_over_and_goes_in_the_end(make_instance, curl):
    """One that somebody serves is not."""
    instance = make_instance()
    path = instance.run_dir / "http.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
        instance.configure(f"unix:{path}")
        instance.start()
        eventually(lambda: f"cannot listen on unix:{path}: Address already in use" in instance.log, "it is said")
    assert eventually(lambda: curl("http://devherd/readyz", "--unix-socket", path)[0], "it serves") == 503
    os.kill(instance.exporter_pid, signal.SIGTERM)
    eventually(lambda: not path.exists(), "the socket is removed")


def test_the_group_of_a_setgid_directory_may_use_its_socket(make_instance):
    """The way to let a proxy in."""
    if os.geteuid() != 0:
        not_tested("only root can give a directory to a group")
    instance = make_instance()
    directory = instance.run_dir / "http"
    directory.mkdir()
    os.chown(directory, -1, 4242)
    directory.chmod(0o2750)
    instance.configure(f"unix:{directory}/devherd.sock")
    instance.start()
    path = eventually(lambda: next(directory.glob("devherd.sock"), None), "it serves")
    status = eventually(lambda: path.exists() and path.stat(), "it is there")
    assert (status.st_gid, status.st_mode & 0o777) == (4242, 0o660)


def test_a_renewed_certificate_that_no_descriptor_was_left_for_is_served_once_there_is_one(tls, authority):
    """Defect: the old one was served until the files changed again, and beyond its end. So after a `chmod`."""
    encryption = Encryption()
    encryption.use(tls)
    old = encryption.context
    authority.sign("server", "IP:127.0.0.1")

    with descriptors(0):
        encryption.tend()
    assert encryption.context is old
    encryption.tend()
    assert encryption.context not in (None, old)

    new = encryption.context
    encryption.tend()
    assert encryption.context is new
