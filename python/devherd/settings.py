"""Where things are and how to log: the options that every command and every process shares."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RegistrationWay = Literal["kubelet_socket", "plugins_registry"]
"""How resources come to the kubelet: by a call to its socket, or by sockets that it finds by itself."""

FileVersion = tuple[int, int, int]
"""Inode, time of change in nanoseconds, size: told apart from another without asking which is younger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The common options, resolved (option, environment, file, default). Children inherit it by fork."""

    config_path: Path | None = None
    config_seen: FileVersion | None = None
    """Which version of that file was read."""
    host_root: Path = Path("/")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    registration: RegistrationWay = "kubelet_socket"
    run_dir: Path = Path("/run/devherd")
    listen: str = "127.0.0.1:9478"
    log_level: str = "info"
    log_format: str = "text"
    kubelet_check: float = 30.0
    """Seconds after which a resource child asks the kubelet again whether it still has its devices; 0 = never."""
    given_options: tuple[tuple[str, str], ...] = ()
    """What the command line gave, by option name: a reload must not lose it."""

    @property
    def plugin_directory(self) -> Path:
        """Where device plugins put their sockets."""
        return self.kubelet_dir / "device-plugins"

    @property
    def plugins_registry(self) -> Path:
        """Where the kubelet looks for plugins that wait to be found."""
        return self.kubelet_dir / "plugins_registry"

    @property
    def socket_directory(self) -> Path:
        """Where sockets of resources are put."""
        return self.plugin_directory if self.registration == "kubelet_socket" else self.plugins_registry

    @property
    def socket_directories(self) -> tuple[Path, Path]:
        """Where sockets of a resource may lie, whichever way it was registered."""
        return self.plugin_directory, self.plugins_registry

    @property
    def kubelet_socket(self) -> Path:
        """Where the kubelet takes registrations."""
        return self.plugin_directory / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet tells which pod holds which device."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    @property
    def resources_directory(self) -> Path:
        """One spool file per resource type, written by the scanner."""
        return self.run_dir / "resources"

    @property
    def state_directory(self) -> Path:
        """One file per resource type, written by its child."""
        return self.run_dir / "state"

    @property
    def scan_file(self) -> Path:
        """The last scan, written by the scanner."""
        return self.run_dir / "scan.pb"

    @property
    def last_good_config_file(self) -> Path:
        """The configuration in force, written by the scanner for its own restart with a file gone bad."""
        return self.run_dir / "config.json"

    @property
    def children_file(self) -> Path:
        """Every child, written by the supervisor."""
        return self.run_dir / "children.pb"

    @property
    def counters_directory(self) -> Path:
        """prometheus-client's multiprocess files, one set per child name."""
        return self.run_dir / "counters"

    @property
    def logs_directory(self) -> Path:
        """What each child wrote to stderr, for `supervisorctl tail`."""
        return self.run_dir / "logs"

    @property
    def control_socket(self) -> Path:
        """Where supervisorctl reaches the supervisor."""
        return self.run_dir / "supervisor.sock"

    @property
    def supervisord_conf(self) -> Path:
        """The generated file for `supervisorctl -c`."""
        return self.run_dir / "supervisord.conf"

    @property
    def own_names(self) -> set[str]:
        """Everything that an instance puts into its run directory."""
        paths = (
            self.resources_directory,
            self.state_directory,
            self.scan_file,
            self.last_good_config_file,
            self.children_file,
            self.counters_directory,
            self.logs_directory,
            self.control_socket,
            self.supervisord_conf,
            self.lock_file,
        )
        return {path.name for path in paths}

    @property
    def lock_file(self) -> Path:
        """Held by the running instance."""
        return self.run_dir / "lock"


def version_of(file: Path) -> FileVersion | None:
    """The version of a file that is there now; None when it cannot be seen."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
