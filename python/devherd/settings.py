"""Where things are and how to log: the options that every command and every process shares."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devherd.configurations import Configurations

RegistrationWay = Literal["kubelet_socket", "plugins_registry"]
"""How resources come to the kubelet: by a call to its socket, or by sockets that it finds by itself."""


DEFAULT_RUN_DIR, DEFAULT_STATE_DIR = Path("/run/devherd"), Path("/var/lib/devherd")

UNIX = "unix:"
"""What a path among the addresses of `listen` begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The common options, resolved (option, environment, file, default). Children inherit it by fork."""

    config_path: Path | None = None
    config_seen: tuple[int, int, int] | None = None
    """Which version of that file was read (spool/identity.py)."""
    configurations: Configurations | None = None
    """Where a label of the node has chosen that file, if one has."""
    config_label_value: str = ""
    """What the label said then; empty: the node has none, or nobody could tell."""
    host_root: Path = Path("/")
    kubelet_dir: Path = Path("/var/lib/kubelet")
    registration: RegistrationWay = "kubelet_socket"
    run_dir: Path = DEFAULT_RUN_DIR
    state_dir: Path | None = None
    """What outlives a boot; None: see `lasting_directory`."""
    listen: str = "127.0.0.1:9478"
    log_level: str = "info"
    log_format: str = "text"
    kubelet_check: float = 30.0
    """Seconds after which the kubelet is asked again whether it still has all devices; 0 = never."""
    given_options: tuple[tuple[str, str], ...] = ()
    """What the command line gave, by option name: a reload must not lose it."""

    @property
    def listen_addresses(self) -> list[str]:
        """Where the exporter serves: `ADDRESS:PORT`, or `unix:` and the path of a socket."""
        return self.listen.split(",") if self.listen else []

    @property
    def listen_directories(self) -> list[Path]:
        """Those of its Unix sockets."""
        paths = (Path(each.removeprefix(UNIX)) for each in self.listen_addresses if each.startswith(UNIX))
        return [path.parent for path in paths]

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
        """The kubelet's PodResources socket: which pod holds which device."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    @property
    def offers_directory(self) -> Path:
        """What each front end offers, a directory each, written by the scanner."""
        return self.run_dir / "offers"

    @property
    def resources_directory(self) -> Path:
        """What the kubelet is offered by device plugins: one file per resource type."""
        return self.offers_directory / "device-plugin"

    @property
    def devices_file(self) -> Path:
        """What is known of the host's devices, written by the scanner."""
        return self.run_dir / "devices.pb"

    @property
    def state_directory(self) -> Path:
        """One file per resource type, written by its child."""
        return self.run_dir / "state"

    @property
    def requests_directory(self) -> Path:
        """What each source is to be asked, written by the scanner: one file for each source that runs."""
        return self.run_dir / "requests"

    @property
    def facts_directory(self) -> Path:
        """What sources know of the devices, one file a source, written by its process."""
        return self.run_dir / "facts"

    @property
    def nvml_answer_file(self) -> Path:
        """NVML's answer, written by process `source:nvml`."""
        return self.facts_directory / "nvml.json"

    @property
    def findings_directory(self) -> Path:
        """What sources see on the devices, one file a source, written by its process."""
        return self.run_dir / "findings"

    @property
    def lasting_directory(self) -> Path | None:
        """What outlives a boot."""
        return lasting_directory(self.state_dir, self.run_dir)

    @property
    def kept_cordons_file(self) -> Path | None:
        """The cordoned devices, as the next boot finds them."""
        return None if self.lasting_directory is None else self.lasting_directory / "cordons.pb"

    @property
    def verdicts_file(self) -> Path:
        """What is held against devices, with the evidence, written by the scanner."""
        return self.run_dir / "verdicts.pb"

    @property
    def allocatable_directory(self) -> Path:
        """What the kubelet lists as allocatable, one file per resource type, written by the exporter."""
        return self.run_dir / "allocatable"

    @property
    def http_directory(self) -> Path:
        """What the exporter says of itself."""
        return self.run_dir / "http"

    @property
    def served_file(self) -> Path:
        """Where it serves, and where not (devherd/served.py)."""
        return self.http_directory / "addresses.json"

    @property
    def history_directory(self) -> Path:
        """What has happened, a directory for each process that tells of it (devherd/history)."""
        return self.run_dir / "history"

    @property
    def told_directory(self) -> Path:
        """What the API server was told, and what it said, written by the processes of the group `kubernetes`."""
        return self.run_dir / "told"

    @property
    def config_label_file(self) -> Path:
        """What the node's label says that chooses the configuration (configurations.py)."""
        return label_file(self.run_dir)

    @property
    def scan_file(self) -> Path:
        """The last scan, written by the scanner."""
        return self.run_dir / "scan.pb"

    @property
    def doubts_file(self) -> Path:
        """What the configuration does on this node that nobody can have meant, written by the scanner."""
        return self.run_dir / "doubts.pb"

    @property
    def resolved_config_file(self) -> Path:
        """The configuration in force (config/resolved_file.py)."""
        return self.run_dir / "config.json"

    @property
    def children_file(self) -> Path:
        """Every child, written by the supervisor."""
        return self.run_dir / "children.pb"

    @property
    def instance_file(self) -> Path:
        """Which devherd runs, written by the supervisor (devherd/head.py)."""
        return self.run_dir / "instance.json"

    @property
    def counts_file(self) -> Path:
        """What the scan core's sources have counted that is no finding."""
        return self.run_dir / "counts.pb"

    @property
    def scanner_state_file(self) -> Path:
        """What a scanner leaves to its successor."""
        return self.run_dir / "scanner.pb"

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
            self.offers_directory,
            self.devices_file,
            self.state_directory,
            self.requests_directory,
            self.facts_directory,
            self.findings_directory,
            self.told_directory,
            self.history_directory,
            self.verdicts_file,
            self.allocatable_directory,
            self.http_directory,
            self.scan_file,
            self.doubts_file,
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
        )
        return {path.name for path in paths}

    @property
    def standby_file(self) -> Path:
        """Which instance waits for the end of the running one (devherd/standby_file.py)."""
        return self.run_dir / "standby.json"

    @property
    def lock_file(self) -> Path:
        """Held by the running instance."""
        return self.run_dir / "lock"


def lasting_directory(state_dir: Path | None, run_dir: Path) -> Path | None:
    """What outlives a boot. An instance beside that of the host shares nothing with it unless it is asked to."""
    return DEFAULT_STATE_DIR if state_dir is None and run_dir == DEFAULT_RUN_DIR else state_dir


def label_file(run_dir: Path) -> Path:
    """That of an instance's `config_label_file`, for those who do not know its settings yet."""
    return run_dir / "told" / "config-label.json"


_FIXED = (
    "host_root",
    "kubelet_dir",
    "registration",
    "run_dir",
    "state_dir",
    "log_level",
    "log_format",
    "kubelet_check",
)


def changed_fixed_options(running: Settings, configured: Settings) -> list[str]:
    """The options that the configuration has changed and that only a restart can change."""
    return [name for name in _FIXED if getattr(configured, name) != getattr(running, name)]
