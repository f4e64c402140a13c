"""Paths and the log: the options that every command and every process shares."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devherd.configurations import Configurations
from devherd.waits import USUAL_WAITS, Waits

RegistrationWay = Literal["kubelet_socket", "plugins_registry"]
"""How resources are registered: by a call to the kubelet's socket, or by sockets that the kubelet finds."""
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

DEFAULT_RUN_DIR, DEFAULT_STATE_DIR = Path("/run/devherd"), Path("/var/lib/devherd")

LOST_FILE = "lost.pb"
"""The name of the file of lost devices, in the run directory and in the state directory."""
UNIX = "unix:"
"""Prefix of Unix socket paths among the addresses of `listen`."""


@dataclass(frozen=True, slots=True)
class CommonOption:
    """A common option as part of a command line: `--name METAVAR`, and its help text."""

    metavar: str
    text: str
    """The help text; `{}` stands for the default."""
    is_fixed: bool = True
    """True if only a restart can change it."""

    @property
    def is_path(self) -> bool:
        """True if its value is a path."""
        return self.metavar in {"DIR", "FILE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The common options, resolved (option, environment, file, default). Children inherit it by fork."""

    config_path: Path | None = None
    config_seen: tuple[int, int, int] | None = None
    """The version of the configuration file that was read (spool.Identity)."""
    configurations: Configurations | None = None
    """The directory of the configuration file, if a label of the node chooses it."""
    config_label_value: str = ""
    """The label's value when the file was read; empty if the node has no such label, or it could not be read."""
    host_root: Path = Path("/")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    kubelet_root_dir: Path | None = None
    """The kubelet's `--root-dir`; None: `kubelet_dir`. See `kubelet_root`."""
    registration: RegistrationWay = "kubelet_socket"
    run_dir: Path = DEFAULT_RUN_DIR
    state_dir: Path | None = None
    """The directory of files that outlive a boot; None: see `lasting_directory`."""
    listen: str = "127.0.0.1:9478"
    web_config: Path | None = None
    kubeconfig: Path | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    kubelet_check: float = 30.0
    """Seconds between two checks that the kubelet still has all devices; 0: never."""
    given_options: tuple[tuple[str, str], ...] = ()
    """The options of the command line, which a reload keeps."""
    waits: Waits = USUAL_WAITS

    @property
    def listen_addresses(self) -> list[str]:
        """The exporter's addresses: `ADDRESS:PORT`, or `unix:` and the path of a socket."""
        return self.listen.split(",") if self.listen else []

    @property
    def listen_directories(self) -> list[Path]:
        """The directories of the exporter's Unix sockets."""
        paths = (Path(each.removeprefix(UNIX)) for each in self.listen_addresses if each.startswith(UNIX))
        return [path.parent for path in paths]

    @property
    def plugin_directory(self) -> Path:
        """The kubelet's directory for the sockets of device plugins."""
        return self.kubelet_dir / "device-plugins"

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's own directory, which its `--root-dir` moves; that of device plugins is always the same.

        Source: DevicePluginPath of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1 is a constant; getPodResourcesDir and
        getPluginsRegistrationDir of pkg/kubelet/kubelet_getters.go are below the root directory.
        """
        return self.kubelet_root_dir or self.kubelet_dir

    @property
    def plugins_registry(self) -> Path:
        """The kubelet's directory in which it finds plugins."""
        return self.kubelet_root / "plugins_registry"

    @property
    def plugins_directory(self) -> Path:
        """The kubelet's directory in which each DRA driver has one for its sockets."""
        return self.kubelet_root / "plugins"

    @property
    def socket_directory(self) -> Path:
        """The directory for the sockets of resources."""
        return self.plugin_directory if self.registration == "kubelet_socket" else self.plugins_registry

    @property
    def socket_directories(self) -> tuple[Path, Path]:
        """All directories that may have sockets of a resource, for both kinds of registration."""
        return self.plugin_directory, self.plugins_registry

    @property
    def kubelet_socket(self) -> Path:
        """The kubelet's registration socket."""
        return self.plugin_directory / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's PodResources socket."""
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def kubelet_directories(self) -> tuple[Path, ...]:
        """The directories of the kubelet that a pod mounts: the whole directory, or these parts of it."""
        own = (self.kubelet_dir, self.kubelet_root, *self.socket_directories, self.pod_resources_socket.parent)
        return tuple(dict.fromkeys(own))

    @property
    def offers_directory(self) -> Path:
        """The resources of each front end, one directory each, written by the scanner."""
        return self.run_dir / "offers"

    @property
    def offers_file(self) -> Path:
        """All offers with verdicts, written by the scanner (proto/spool.proto)."""
        return self.run_dir / "offers.pb"

    @property
    def resources_directory(self) -> Path:
        """The resources of the device plugin front end, one file each."""
        return self.offers_directory / "device-plugin"

    @property
    def devices_file(self) -> Path:
        """The inventory of the host's devices, written by the scanner."""
        return self.run_dir / "devices.pb"

    @property
    def state_directory(self) -> Path:
        """The registration of each resource, one file each, written by its child."""
        return self.run_dir / "state"

    @property
    def dra_directory(self) -> Path:
        """The registrations of the two processes that serve the DRA drivers, one file each, written by them."""
        return self.run_dir / "dra"

    @property
    def prepared_claims_file(self) -> Path:
        """The claims that are prepared on this node; outlives a boot if possible, because allocations do."""
        return (self.lasting_directory or self.run_dir) / "dra" / "claims.pb"

    @property
    def requests_directory(self) -> Path:
        """The scanner's requests to sources, one file for each source that runs."""
        return self.run_dir / "requests"

    @property
    def facts_directory(self) -> Path:
        """Facts that sources report, one file per source, written by its process."""
        return self.run_dir / "facts"

    @property
    def nvml_answer_file(self) -> Path:
        """NVML's answer, written by process `source:nvml`."""
        return self.facts_directory / "nvml.json"

    @property
    def findings_directory(self) -> Path:
        """Findings of sources, one file per source, written by its process."""
        return self.run_dir / "findings"

    @property
    def lasting_directory(self) -> Path | None:
        """The directory of files that outlive a boot; None if no file is to outlive it."""
        return lasting_directory(self.state_dir, self.run_dir)

    @property
    def kept_cordons_file(self) -> Path | None:
        """The cordoned devices, kept for the next boot."""
        return None if self.lasting_directory is None else self.lasting_directory / "cordons.pb"

    @property
    def lost_file(self) -> Path:
        """The lost devices, written by the scanner (devherd/health/lost.py)."""
        return self.run_dir / LOST_FILE

    @property
    def kept_lost_file(self) -> Path | None:
        """The lost devices, kept for the next boot."""
        return None if self.lasting_directory is None else self.lasting_directory / LOST_FILE

    @property
    def present_file(self) -> Path | None:
        """The devices that were there in this boot, for the next one, written by the scanner."""
        return None if self.lasting_directory is None else self.lasting_directory / "present.pb"

    @property
    def verdicts_file(self) -> Path:
        """The verdicts with their evidence, written by the scanner."""
        return self.run_dir / "verdicts.pb"

    @property
    def http_directory(self) -> Path:
        """The exporter's status."""
        return self.run_dir / "http"

    @property
    def served_file(self) -> Path:
        """The addresses at which the exporter serves, and those at which it cannot."""
        return self.http_directory / "addresses.pb"

    @property
    def history_directory(self) -> Path:
        """The history, one directory per process that writes it (devherd/history.py)."""
        return self.run_dir / "history"

    @property
    def kubernetes_directory(self) -> Path:
        """Data from and for the API server, written by process `kubernetes`."""
        return self.run_dir / "kubernetes"

    @property
    def kubernetes_problems_directory(self) -> Path:
        """The problems of the parts of process `kubernetes`, one file each."""
        return self.kubernetes_directory / "problems"

    @property
    def written_labels_file(self) -> Path:
        """How node labels were last written; outlives a boot if possible, because the labels do."""
        return (self.lasting_directory or self.kubernetes_directory) / "labels.pb"

    @property
    def config_label_file(self) -> Path:
        """The answer of the API server on the label that chooses the configuration."""
        return label_file(self.run_dir)

    @property
    def nvidia_pause_file(self) -> Path:
        """Exists while NVIDIA's managers pause the node's GPU clients; written by process `kubernetes`."""
        return self.kubernetes_directory / "nvidia-pause.pb"

    @property
    def scan_file(self) -> Path:
        """The summary of the last scan, written by the scanner."""
        return self.run_dir / "scan.pb"

    @property
    def config_warnings_file(self) -> Path:
        """Warnings on settings that are probably mistakes on this node, written by the scanner."""
        return self.run_dir / "config-warnings.pb"

    @property
    def holders_file(self) -> Path:
        """The devices that pods hold, written while a device is gone (kubelet/holders.py)."""
        return self.run_dir / "holders" / "current.pb"

    @property
    def ledger_file(self) -> Path:
        """Who has which device open, written by process `source:ledger`."""
        return self.run_dir / "ledger" / "current.pb"

    @property
    def pre_start_socket(self) -> Path:
        """The socket of process `pre-start`, which is asked before a container starts (pre_start/main.py)."""
        return self.run_dir / "pre-start" / "sock"

    @property
    def resolved_config_file(self) -> Path:
        """The configuration in force (config/resolved.py)."""
        return self.run_dir / "config.json"

    @property
    def children_file(self) -> Path:
        """The state of all children, written by the supervisor."""
        return self.run_dir / "children.pb"

    @property
    def instance_file(self) -> Path:
        """The running instance, written by the supervisor."""
        return self.run_dir / "instance.pb"

    @property
    def counts_file(self) -> Path:
        """Counts by the scan core's sources that are not findings."""
        return self.run_dir / "counts.pb"

    @property
    def scanner_state_file(self) -> Path:
        """A scanner's data for its successor."""
        return self.run_dir / "scanner.pb"

    @property
    def logs_directory(self) -> Path:
        """The stderr of each child, for `supervisorctl tail`."""
        return self.run_dir / "logs"

    @property
    def control_socket(self) -> Path:
        """The supervisor's socket for supervisorctl."""
        return self.run_dir / "supervisor.sock"

    @property
    def supervisord_conf(self) -> Path:
        """The generated file for `supervisorctl -c`."""
        return self.run_dir / "supervisord.conf"

    @property
    def reserve_file(self) -> Path:
        """A file that reserves space: it is removed when the run directory is full."""
        return self.run_dir / "reserve"

    @property
    def own_names(self) -> set[str]:
        """The names of all files and directories of an instance in its run directory."""
        paths = (
            self.offers_directory,
            self.offers_file,
            self.devices_file,
            self.state_directory,
            self.dra_directory,
            self.requests_directory,
            self.facts_directory,
            self.findings_directory,
            self.kubernetes_directory,
            self.history_directory,
            self.verdicts_file,
            self.lost_file,
            self.holders_file.parent,
            self.pre_start_socket.parent,
            self.ledger_file.parent,
            self.http_directory,
            self.scan_file,
            self.config_warnings_file,
            self.resolved_config_file,
            self.children_file,
            self.instance_file,
            self.counts_file,
            self.scanner_state_file,
            self.logs_directory,
            self.control_socket,
            self.supervisord_conf,
            self.lock_file,
            self.standby_file,
            self.driver_restart_file,
            self.reserve_file,
        )
        return {path.name for path in paths}

    @property
    def standby_file(self) -> Path:
        """The instance that waits for the end of the running one (devherd/instance/files.py)."""
        return self.run_dir / "standby.pb"

    @property
    def driver_restart_file(self) -> Path:
        """Records that an instance ended because of a newer driver, written by the supervisor."""
        return self.run_dir / "driver-restart.pb"

    @property
    def lock_file(self) -> Path:
        """The lock of the running instance."""
        return self.run_dir / "lock"


def lasting_directory(state_dir: Path | None, run_dir: Path) -> Path | None:
    """The directory of files that outlive a boot: `state_dir`, or its default if the run directory is the default.

    An instance with another run directory thus shares no files with the host's instance unless `state_dir` is set.
    """
    return DEFAULT_STATE_DIR if state_dir is None and run_dir == DEFAULT_RUN_DIR else state_dir


def label_file(run_dir: Path) -> Path:
    """`Settings.config_label_file`, for callers that have no Settings yet."""
    return run_dir / "kubernetes" / "config-label.pb"


DEFAULTS = Settings()
COMMON_OPTIONS: Mapping[str, CommonOption] = {
    "host_root": CommonOption("DIR", "where the host's sys/, proc/ and dev/ are (default: {})"),
    "kubelet_dir": CommonOption("DIR", "the kubelet's directory, with device-plugins in it (default: {})"),
    "kubelet_root_dir": CommonOption(
        "DIR", "the kubelet's --root-dir, with pod-resources in it (default: as --kubelet-dir)"
    ),
    "registration": CommonOption(
        "WAY",
        "kubelet_socket: register at the kubelet's socket; plugins_registry: by a socket that it finds there"
        " (default: {})",
    ),
    "run_dir": CommonOption("DIR", "sockets and state of the instance (default: {})"),
    "state_dir": CommonOption(
        "DIR", f"files that outlive a reboot: cordons, lost devices (default: {DEFAULT_STATE_DIR}; none with --run-dir)"
    ),
    "listen": CommonOption(
        "ADDR:PORT",
        "where the exporter serves; also unix:PATH, several with commas, empty = off (default: {})",
        is_fixed=False,
    ),
    "web_config": CommonOption(
        "FILE", "TLS and passwords of the exporter, in the format of Prometheus exporters", is_fixed=False
    ),
    "kubeconfig": CommonOption(
        "FILE", "how the API server is reached outside a pod, such as /etc/kubernetes/kubelet.conf", is_fixed=False
    ),
    "log_level": CommonOption("LEVEL", "debug, info, warning or error (default: {})"),
    "log_format": CommonOption("FORMAT", "text or json, on stderr (default: {})"),
}
"""The options that every command accepts besides `--config`; each key is a field of `Settings`."""
_FIXED = (*(name for name, option in COMMON_OPTIONS.items() if option.is_fixed), "kubelet_check")


def changed_fixed_options(running: Settings, configured: Settings) -> list[str]:
    """The names of changed options that take effect only after a restart."""
    return [name for name in _FIXED if getattr(configured, name) != getattr(running, name)]
