"""The options that every command takes, and the configuration that they lead to."""

import argparse
import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devherd.config import Config

_OPTIONS = {
    "--config": ("FILE", "configuration (default: /etc/devherd/config.yaml if there is one)"),
    "--host-root": ("DIR", "where the host's sys/, proc/ and dev/ are (default: /)"),
    "--kubelet-dir": ("DIR", "the kubelet's directory (default: /var/lib/kubelet)"),
    "--registration": (
        "WAY",
        "kubelet_socket, or plugins_registry, where the kubelet finds devherd (default: kubelet_socket)",
    ),
    "--run-dir": ("DIR", "sockets and state of the instance (default: /run/devherd)"),
    "--state-dir": (
        "DIR",
        "what outlives a boot: cordons (default: /var/lib/devherd, and nowhere where --run-dir is given)",
    ),
    "--listen": (
        "ADDR:PORT",
        "where the exporter serves; also unix:PATH, several with commas, empty = off (default: 127.0.0.1:9478)",
    ),
    "--web-config": ("FILE", "TLS and passwords of the exporter, as Prometheus exporters have them"),
    "--log-level": ("LEVEL", "debug, info, warning or error (default: info)"),
    "--log-format": ("FORMAT", "text or json, on stderr (default: text)"),
}
ALL = tuple(_OPTIONS)
VALUES = {
    "--registration": ("kubelet_socket", "plugins_registry"),
    "--log-level": ("debug", "info", "warning", "error"),
    "--log-format": ("text", "json"),
}
"""Of those with few; the configuration says what is wrong with others."""
TITLE = "common options"


def add(parser: argparse.ArgumentParser, shown: Collection[str] = ALL) -> None:
    """Add them to a command's parser. It takes all, as scripts may give them, and shows those that mean something."""
    said = "Each is also an environment variable DEVHERD_<NAME> and, except --config, a config key."
    group = parser.add_argument_group(TITLE, said) if shown else parser
    for option, (metavar, text) in _OPTIONS.items():
        if option in shown:
            group.add_argument(option, metavar=metavar, help=text)
        else:
            parser.add_argument(option, metavar=metavar, help=argparse.SUPPRESS)


def load_config(arguments: argparse.Namespace) -> "Config":
    """The configuration for a command. Raises ConfigError or UsageError."""
    from devherd.config import COMMON_OPTIONS, load

    return load(given_options(arguments, ("config", *COMMON_OPTIONS)), os.environ)


def given_options(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, str | None]:
    """What the command line gives of these; None: not given."""
    return {name: getattr(arguments, name, None) for name in names}
