"""Serve NVIDIA GPUs instead of NVIDIA's device plugin, configured by the plugin's own variables and file.

devherd's image has this as the program `nvidia-device-plugin`, so that a manifest of the plugin, or NVIDIA's GPU
operator (`devicePlugin.repository`, `image` and `version`), can start it. It converts the configuration, as
`config import` does, and continues as `devherd run`. Devices of other vendors are not served. DEVHERD_… variables work.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from devherd.cli.options import given_options, word_of
from devherd.errors import UsageError
from devherd.settings import COMMON_OPTIONS

if TYPE_CHECKING:
    from devherd.importers import Imported

_HOST = Path("/host")
"""Where the operator's manifest mounts the root of the host (assets/state-device-plugin/0500_daemonset.yaml)."""
_POD_RESOURCES = Path("var/lib/kubelet/pod-resources")
_FILE = "CONFIG_FILE"
"""The plugin's variable for its file."""


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the operator and the plugin's chart give variables."""


def run(arguments: argparse.Namespace) -> NoReturn:
    """Become `devherd run`. Raises UsageError for values that the plugin would refuse."""
    imported = _imported(os.environ)
    for note in imported.notes:
        print(f"devherd: {note}", file=sys.stderr)
    given = given_options(vars(arguments), COMMON_OPTIONS)
    options = [f"{word_of(name)}={value}" for name, value in given.items() if value is not None]
    options.append(f"--config={_written(imported)}")
    if not given["host_root"] and "DEVHERD_HOST_ROOT" not in os.environ and (_HOST / "proc/driver").is_dir():
        options.append(f"--host-root={_HOST}")
        with contextlib.suppress(OSError):  # it exists already, or without it nobody knows which pod has which device
            (Path("/") / _POD_RESOURCES).symlink_to(_HOST / _POD_RESOURCES)
    command = [sys.executable, "-P", "-m", "devherd", "run", *options]
    os.execv(command[0], command)  # noqa: S606 - no shell is needed


def _imported(environment: Mapping[str, str]) -> "Imported":
    from devherd.config import yaml_file
    from devherd.config.vendors import Vendors
    from devherd.importers.nvidia import NVIDIA
    from devherd.importers.plugin import Invocation

    file = None
    if path := environment.get(_FILE):
        documents = yaml_file.parse_all(yaml_file.read_text(Path(path), f"correct {_FILE}"))
        file = documents[0] if documents else None
        if not isinstance(file, Mapping) or not NVIDIA.is_file(file):
            raise UsageError(f"{path} is not a configuration of NVIDIA's plugin", "its keys are others", "correct it")
    imported = NVIDIA.imported(Invocation(("nvidia-device-plugin",), environment), file)
    for vendor in sorted(Vendors.model_fields.keys() - {"nvidia"}):
        imported.put(f"vendors.{vendor}", {"enabled": False})
    return imported


def _written(imported: "Imported") -> Path:
    from devherd.cli.import_config import checked_text

    text = checked_text(imported, "the environment")
    try:
        file = Path(tempfile.mkdtemp(prefix="devherd-")) / "config.yaml"
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            "cannot write the configuration", why, "set TMPDIR to a directory that can be written"
        ) from error
    return file
