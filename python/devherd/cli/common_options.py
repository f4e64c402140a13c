"""The options that every command has, and the configuration that they lead to."""

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devherd.config import Config


def add(parser: argparse.ArgumentParser) -> None:
    """Add the common options to a command's parser."""
    group = parser.add_argument_group(
        "common options", "Each is also an environment variable DEVHERD_<NAME> and, except --config, a config key."
    )
    group.add_argument(
        "--config", metavar="FILE", help="configuration (default: /etc/devherd/config.yaml if there is one)"
    )
    group.add_argument("--host-root", metavar="DIR", help="where the host's sys/, proc/ and dev/ are (default: /)")
    group.add_argument("--kubelet-dir", metavar="DIR", help="the kubelet's directory (default: /var/lib/kubelet)")
    group.add_argument(
        "--registration",
        metavar="WAY",
        help="kubelet_socket, or plugins_registry, where the kubelet finds devherd (default: kubelet_socket)",
    )
    group.add_argument("--run-dir", metavar="DIR", help="sockets and state of the instance (default: /run/devherd)")
    group.add_argument(
        "--state-dir",
        metavar="DIR",
        help="what outlives a boot: cordons (default: /var/lib/devherd, and nowhere where --run-dir is given)",
    )
    group.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        help="where the exporter serves; also unix:PATH, several with commas, empty = off (default: 127.0.0.1:9478)",
    )
    group.add_argument(
        "--web-config", metavar="FILE", help="TLS and passwords of the exporter, as Prometheus exporters have them"
    )
    group.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (default: info)")
    group.add_argument("--log-format", metavar="FORMAT", help="text or json, on stderr (default: text)")


def load_config(arguments: argparse.Namespace) -> "Config":
    """The configuration for a command. Raises ConfigError or UsageError."""
    from devherd.config import COMMON_OPTIONS, load

    return load({name: getattr(arguments, name) for name in ("config", *COMMON_OPTIONS)}, os.environ)
