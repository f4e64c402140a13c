"""A web configuration file: the format that Prometheus and its exporters share, for TLS and passwords.

Source: <https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>. Settings that
devherd does not support are refused by name: a setting that protects must never be ignored.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from devherd.config.errors import WrongValueError, echo
from devherd.config.types import Section, Switch, UsablePath
from devherd.config.web import ClientAuth, Tls, TlsVersion, Web

_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def _refused(instead: str) -> BeforeValidator:
    """A validator that refuses a key of the format, because devherd does not support it."""

    def refuse(_: Any) -> Any:
        raise WrongValueError("not supported by devherd", instead)

    return BeforeValidator(refuse)


def _hash(text: Any) -> Any:
    """Validate the hash of a password. A bad value is never echoed: it may be the password itself."""
    if not isinstance(text, str) or not _BCRYPT.fullmatch(text):
        raise WrongValueError("not a password hashed by bcrypt", "make one with `htpasswd -nBC 10 NAME`")
    return text


def _user(name: str) -> str:
    if not name or ":" in name:
        raise WrongValueError(f"{echo(name)} is not a user name", "give one, without a colon")
    return name


def _one_line(text: str) -> str:
    if not _PRINTABLE.fullmatch(text):
        raise WrongValueError(f"{echo(text)} is not a header", "give one line of printable ASCII")
    return text


def _http_1(is_wanted: bool) -> bool:
    if is_wanted:
        raise WrongValueError("HTTP/2 is not supported by devherd", "leave it out")
    return is_wanted


Header = Annotated[str, AfterValidator(_one_line)]


class TlsSection(Section):
    """`tls_server_config`; without any key, TLS is off."""

    cert_file: UsablePath | None = None
    key_file: UsablePath | None = None
    client_ca_file: UsablePath | None = None
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: list[str] = []
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"
    prefer_server_cipher_suites: Switch = True
    """Has no effect, as in Go since 1.17."""
    cert: Annotated[Any, _refused("name a file in `cert_file`")] = None
    key: Annotated[Any, _refused("name a file in `key_file`")] = None
    client_ca: Annotated[Any, _refused("name a file in `client_ca_file`")] = None
    cipher_suites: Annotated[Any, _refused("leave it out: those of OpenSSL are offered")] = None
    curve_preferences: Annotated[Any, _refused("leave it out: those of OpenSSL are offered")] = None

    @model_validator(mode="after")
    def _whole(self) -> "TlsSection":
        verifies = self.client_auth_type != "NoClientCert"
        if self.model_fields_set and not (self.cert_file and self.key_file):
            raise WrongValueError("TLS needs both `cert_file` and `key_file`", "add what is missing")
        if verifies and not self.client_ca_file:
            raise WrongValueError(f"`client_auth_type: {self.client_auth_type}` needs `client_ca_file`", "add it")
        if not verifies and (self.client_ca_file or self.client_allowed_sans):
            raise WrongValueError(
                "`client_ca_file` and `client_allowed_sans` have no effect without `client_auth_type`",
                "set it to `RequireAndVerifyClientCert`",
            )
        if (self.min_version, self.max_version) == ("TLS13", "TLS12"):
            raise WrongValueError("`min_version` is above `max_version`", "change one of them", at=("min_version",))
        return self

    def in_force(self, directory: Path) -> Tls | None:
        """The plain values, with paths relative to `directory`; None if TLS is off."""
        if not (self.cert_file and self.key_file):
            return None
        return Tls(
            cert_file=directory / self.cert_file,
            key_file=directory / self.key_file,
            client_ca_file=directory / self.client_ca_file if self.client_ca_file else None,
            client_auth_type=self.client_auth_type,
            client_allowed_sans=self.client_allowed_sans,
            min_version=self.min_version,
            max_version=self.max_version,
        )


class Headers(Section):
    """`http_server_config.headers`: the format allows no others. An empty one keeps devherd's own header, if any."""

    csp: Annotated[Header, Field(alias="Content-Security-Policy")] = ""
    frame: Annotated[Literal["", "deny", "sameorigin"], Field(alias="X-Frame-Options")] = ""
    sniff: Annotated[Literal["", "nosniff"], Field(alias="X-Content-Type-Options")] = ""
    xss: Annotated[Header, Field(alias="X-XSS-Protection")] = ""
    hsts: Annotated[Header, Field(alias="Strict-Transport-Security")] = ""


class HttpSection(Section):
    """`http_server_config`."""

    http2: Annotated[Switch, AfterValidator(_http_1)] = False
    headers: Headers = Headers()


class WebConfig(Section):
    """The file; an empty one protects nothing."""

    tls_server_config: TlsSection = TlsSection()
    http_server_config: HttpSection = HttpSection()
    basic_auth_users: dict[Annotated[str, AfterValidator(_user)], Annotated[str, BeforeValidator(_hash)]] = {}
    rate_limit: Annotated[Any, _refused("leave it out: connections are limited for each client")] = None

    def in_force(self, file: Path) -> Web:
        """The plain values; relative paths start at the directory of `file`, an absolute path."""
        headers = self.http_server_config.headers.model_dump(by_alias=True)
        return Web(
            file=file,
            tls=self.tls_server_config.in_force(file.parent),
            headers={name: value for name, value in headers.items() if value},
            users=dict(self.basic_auth_users),
        )
