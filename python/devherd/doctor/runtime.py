"""Whether the container runtime supports CDI devices, by its configuration files on the host.

containerd: docs/cri/config.md (CDI is off in 1.7 unless `enable_cdi` is true, on in 2.0 and newer). CRI-O: crio.conf(5)
(on since 1.23). Both read /etc/cdi and /var/run/cdi by default.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devherd.doctor.line import Line, ok, problem, warning

TOPIC = "runtime"
_CONTAINERD = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "etc/k0s/containerd.toml",
    "var/snap/microk8s/current/args/containerd.toml",
)
_CRIO = ("etc/crio/crio.conf", "usr/share/containers/oci/crio.conf")
_CRIO_DIRECTORY = "etc/crio/crio.conf.d"
_PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")  # of versions 2 and 3 of the file
_DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The settings in one configuration file."""

    name: str
    file: Path
    error: str = ""
    """Why the file cannot be read."""
    enables_cdi: bool | None = None
    """None if the file does not set it; the default depends on the runtime's version."""
    cdi_directories: tuple[str, ...] = _DEFAULT_DIRECTORIES


def look(host_root: Path) -> list[Runtime]:
    """Read the files that exist."""
    found = [_read("containerd", host_root / name, containerd) for name in _CONTAINERD if (host_root / name).is_file()]
    drop_ins = (host_root / _CRIO_DIRECTORY).glob("*.conf") if (host_root / _CRIO_DIRECTORY).is_dir() else ()
    files = [*(host_root / name for name in _CRIO), *sorted(drop_ins)]
    return found + [_read("CRI-O", file, crio) for file in files if file.is_file()]


def containerd(content: Mapping[str, Any], file: Path) -> Runtime:
    """The settings in containerd's file."""
    plugins = content.get("plugins", {})
    options: dict[str, Any] = {}
    for name in _PLUGINS:
        options |= plugins.get(name, {})
    enabled = options.get("enable_cdi", True if content.get("version", 1) >= 3 else None)
    return Runtime(name="containerd", file=file, enables_cdi=enabled, cdi_directories=_directories(options))


def crio(content: Mapping[str, Any], file: Path) -> Runtime:
    """The settings in one of CRI-O's files."""
    options = content.get("crio", {}).get("runtime", {})
    return Runtime(name="CRI-O", file=file, enables_cdi=True, cdi_directories=_directories(options))


def judge(found: list[Runtime], cdi_dir: Path, *, uses_cdi: bool) -> Iterator[Line]:
    """The report lines; `uses_cdi` is whether any device is given to containers by CDI."""
    if not uses_cdi:
        yield ok(TOPIC, "no device is given by CDI: every runtime works")
        return
    if not found:
        cure = "run `devherd doctor` on the host; containerd 1.7 needs `enable_cdi = true`, 2.0 and CRI-O need nothing"
        yield warning(TOPIC, "devices are given by CDI, and no runtime's configuration is visible from here", cure)
    for runtime in found:
        yield _of(runtime, cdi_dir)


def _of(runtime: Runtime, cdi_dir: Path) -> Line:
    where = f"{runtime.name} ({runtime.file})"
    if runtime.error:
        return warning(TOPIC, f"{where} cannot be read: {runtime.error}", "make sure that CDI is enabled in it")
    if runtime.enables_cdi is False:
        return problem(TOPIC, f"{where} has CDI disabled", "set `enable_cdi = true` and restart containerd")
    if str(cdi_dir) not in runtime.cdi_directories:
        listed = ", ".join(runtime.cdi_directories)
        return problem(TOPIC, f"{where} reads CDI specs in {listed}, not in {cdi_dir}", "set `cdi_dir` to one of these")
    if runtime.enables_cdi is None:
        cure = "set `enable_cdi = true` if it is containerd 1.7, which has it off; 2.0 and newer have it on"
        return warning(TOPIC, f"{where} does not set whether CDI is on", cure)
    return ok(TOPIC, f"{where} takes CDI devices from {cdi_dir}")


def _read(name: str, file: Path, parse: Any) -> Runtime:
    try:
        parsed: Runtime = parse(tomllib.loads(file.read_text("utf-8")), file)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return Runtime(name=name, file=file, error=str(error))
    return parsed


def _directories(options: Mapping[str, Any]) -> tuple[str, ...]:
    given = tuple(map(str, options.get("cdi_spec_dirs") or ()))
    return tuple(dict.fromkeys([*given, *_same(given)])) or _DEFAULT_DIRECTORIES


def _same(directories: tuple[str, ...]) -> Iterator[str]:
    """The other names of these directories: /var/run is a link to /run."""
    for directory in directories:
        if directory.startswith("/var/run/"):
            yield directory.removeprefix("/var")
        elif directory.startswith("/run/"):
            yield f"/var{directory}"
