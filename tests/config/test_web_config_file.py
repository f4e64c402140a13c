"""The web configuration file: what Prometheus' exporters read, and what devherd refuses of it, each by its name."""

from pathlib import Path

import pytest

from devherd.config import loader
from devherd.config.errors import ConfigError
from devherd.config.web import Tls, Web
from devherd.errors import UsageError

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"


@pytest.fixture
def web(tmp_path):
    """`web(text)`: what the file comes to; raises as `config.load` does."""

    def load(text):
        path = tmp_path / "web.yaml"
        path.write_text(text)
        return loader.load({"web_config": str(path)}, {}).web

    return load


def test_the_whole_format_is_read(web, tmp_path):
    """Relative paths begin at the file's directory."""
    read = web(
        f"""
        tls_server_config:
          cert_file: tls.crt
          key_file: /keys/tls.key
          client_ca_file: ca.crt
          client_auth_type: RequireAndVerifyClientCert
          client_allowed_sans: [prometheus]
          min_version: TLS13
          prefer_server_cipher_suites: true
        http_server_config:
          http2: false
          headers: {{Strict-Transport-Security: max-age=60, X-Frame-Options: deny, X-XSS-Protection: }}
        basic_auth_users: {{alice: {HASH}}}
        """
    )
    assert read == Web(
        tls=Tls(
            cert_file=tmp_path / "tls.crt",
            key_file=Path("/keys/tls.key"),
            client_ca_file=tmp_path / "ca.crt",
            client_auth_type="RequireAndVerifyClientCert",
            client_allowed_sans=["prometheus"],
            min_version="TLS13",
        ),
        headers={"Strict-Transport-Security": "max-age=60", "X-Frame-Options": "deny"},
        users={"alice": HASH},
    )


@pytest.mark.parametrize("text", ["", "tls_server_config:\nbasic_auth_users:\n", "http_server_config: {headers: }"])
def test_an_empty_file_protects_nothing(web, text):
    """As with the exporters of others."""
    assert web(text) == Web()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls_config: {}", "tls_config: unknown key — did you mean `tls_server_config`"),
        ("tls_server_config: {certfile: a}", "tls_server_config.certfile: unknown key — did you mean `cert_file`?"),
        (
            "tls_server_config: {cert_file: a}",
            "tls_server_config: TLS needs both `cert_file` and `key_file` — add what is missing",
        ),
        (
            "tls_server_config: {cert: PEM, key_file: b}",
            "tls_server_config.cert: not supported by devherd — name a file in `cert_file`",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, cipher_suites: [TLS_AES_128_GCM_SHA256]}",
            "tls_server_config.cipher_suites: not supported by devherd — leave it out: those of OpenSSL are offered",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAnyClientCert}",
            "tls_server_config.client_auth_type: `RequireAnyClientCert` is not one of `NoClientCert`,",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
            "tls_server_config: `client_auth_type: RequireAndVerifyClientCert` needs `client_ca_file`",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}",
            "tls_server_config: `client_ca_file` and `client_allowed_sans` have no effect without",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}",
            "tls_server_config.min_version: `TLS10` is not one of `TLS12`, `TLS13`",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, min_version: TLS13, max_version: TLS12}",
            "tls_server_config.min_version: `min_version` is above `max_version`",
        ),
        (
            "http_server_config: {http2: true}",
            "http_server_config.http2: HTTP/2 is not supported by devherd — leave it out",
        ),
        ("http_server_config: {headers: {Server: x}}", "http_server_config.headers.Server: unknown key — "),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb"}}',
            "http_server_config.headers.X-XSS-Protection: `a\\x0d\\x0ab` is not a header",
        ),
        (
            "basic_auth_users: {alice: secret}",
            "basic_auth_users.alice: not a password hashed by bcrypt — make one with `htpasswd -nBC 10 NAME`",
        ),
        (
            f"basic_auth_users: {{'al:ice': {HASH}}}",
            "basic_auth_users.al:ice: `al:ice` is not a user name — give one, without a colon",
        ),
        (
            "rate_limit: {burst: 3}",
            "rate_limit: not supported by devherd — leave it out: connections are limited for each client",
        ),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(web, tmp_path, text, problem):
    """A setting that protects is never ignored."""
    with pytest.raises(ConfigError) as refused:
        web(text)
    assert str(refused.value).startswith(f"bad configuration in {tmp_path}/web.yaml:1:")
    assert problem in str(refused.value)


def test_a_file_that_cannot_be_read_is_named_with_its_option(tmp_path):
    """Instead of `--config`, which is another."""
    with pytest.raises(UsageError) as refused:
        loader.load({"web_config": str(tmp_path / "none")}, {})
    assert str(refused.value) == (
        f"cannot read {tmp_path}/none — No such file or directory — name a readable file with --web-config"
    )


@pytest.mark.parametrize("password", ["hunter2", "4711", "[4711]"])
def test_the_password_of_nobody_is_shown_in_an_error(web, password):
    """Whoever wrote it in plain text finds it in no log."""
    with pytest.raises(ConfigError) as refused:
        web(f"basic_auth_users: {{alice: {password}}}")
    assert password not in str(refused.value)


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        ("unix:/run/devherd-http/http.sock", None),
        ("127.0.0.1:9478,unix:/run/devherd-http/http.sock,[::1]:9478", None),
        ("unix:http.sock", "`unix:http.sock` is not the path of a socket"),
        ("unix:/run/../http.sock", "is not the path of a socket"),
        (f"unix:/{'a' * 107}", "` is too long — give the path of a socket at most 107 bytes"),
        ("127.0.0.1:9478,", "an empty text is not an ADDRESS:PORT"),
    ],
)
def test_listen_takes_sockets_and_several_addresses(listen, problem):
    """Each is checked."""
    if problem is None:
        assert loader.load({"listen": listen}, {}).settings().listen_addresses == listen.split(",")
        return
    with pytest.raises(ConfigError, match="bad value of --listen — ") as refused:
        loader.load({"listen": listen}, {})
    assert problem in str(refused.value)
