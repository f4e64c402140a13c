"""The programs of an instance, as data: group, name, module and access.

Modules that children share are imported before the forks, others in the child.
"""

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from devherd import spool
from devherd.config.api_access import SERVICE_ACCOUNT
from devherd.config.chosen_file import kept_label_file
from devherd.config.resolved import ResolvedConfig, ResolvedFileError, read_resolved
from devherd.kubernetes.access import needs_process
from devherd.lean_imports import PROMETHEUS, lean_imports
from devherd.process import HOLDERS
from devherd.proto import spool_pb2
from devherd.reasons.registry import AMD_KFD, EXTERNAL_PREFIX, LEDGER, MONITORS, NVML, temporary_directory
from devherd.settings import Settings
from devherd.supervisor.sandbox import DEFAULT_LIMITS, MEBIBYTE, Access, Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One child, `group:name` in supervisorctl, or, with `per_file`, one child for each spool file of a directory.

    To add a program, add one entry to `DEVHERD`.
    """

    group: str
    name: str = ""
    """Its name in the group; if empty, the group's name. With `per_file`, the file's key."""
    module: str
    """Imported in the child; `main(child)` of it returns the exit code."""
    may: Callable[[Settings, str], Access]
    """Returns the access of a child, by the settings and its name."""
    per_file: Callable[[Settings], Path] | None = None
    """The directory with one spool file for each child: created files start children, removed files stop them."""
    suffix: str | None = None
    """Suffix of those files."""
    keys: Callable[[str], bool] = lambda _key: True
    """Returns True if the file with this key belongs to this program."""
    wanted: Callable[[ResolvedConfig, Settings], bool] | None = None
    """Returns True if the child, or with `per_file` any, runs under the configuration in force; None: always."""
    reloads: bool = False
    """True if it reads the configuration, and reads it again at SIGHUP."""
    starts_programs: bool = False
    """True if it starts programs of the operator, which may leave processes behind."""
    serves: bool = False
    """True if the kubelet calls its children: they start before the others, and stop after them."""
    is_awaited: Callable[[ResolvedConfig], bool] = lambda _config: False
    """Returns True if pods wait for what its child does at the start: it starts with those that serve."""
    hands_over: Callable[[Settings], bool] = lambda _settings: False
    """Returns True if its children continue to serve after YIELD, until the next instance's have taken over."""


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Programs:
    """Everything that the supervisor runs. Groups start in the order of their first program; those that serve last."""

    children: tuple[Program, ...]
    first_scan: Callable[[ResolvedConfig], None]
    """Runs before other children start, in a separate process."""
    preload: Callable[[], None]
    """Imports what resource children need, in the supervisor."""
    preload_wanted: Callable[[ResolvedConfig], None] = _nothing
    """The same for children that only some configurations want, and before the first fork."""
    preload_scan: Callable[[], None] = _nothing
    """Imports what the first scan needs, in its process, while the supervisor still imports."""
    rehearse: Callable[[ResolvedConfig], None] = _nothing
    """Runs in the first scan's process while it waits; raises if this instance cannot do its work."""
    admit: Callable[[ResolvedConfig], None] = _nothing
    """Runs after the first scan, before any child starts; raises if this instance must not serve yet."""
    stand_by: Callable[[ResolvedConfig, str, Callable[[], bool], bool], None] = _nothing
    """Runs in a separate process while this instance waits for another one; killed at the end of the wait.

    Arguments: the configuration; why it waits; a function that announces this instance as standby, to be called until
    it returns True, because another standby may have announced itself; a bool, True if this one is ready to take over.
    """


def _preload_scan() -> None:
    with lean_imports():
        import devherd.scanner.loop  # noqa: PLC0415, F401 - only this process needs it


def _first_scan(config: ResolvedConfig) -> None:
    from devherd.scanner import loop as scanner  # noqa: PLC0415 - only this process needs it

    scanner.first_scan(config)


def _rehearse(config: ResolvedConfig) -> None:
    from devherd.supervisor.first_scan import rehearse_start  # noqa: PLC0415 - in the process of the first scan

    rehearse_start(config, _rehearsal_access(config.settings()))


def _admit(config: ResolvedConfig) -> None:
    from devherd.supervisor.first_scan import admit  # noqa: PLC0415 - as above

    admit(config)


def _stand_by(config: ResolvedConfig, why: str, announce: Callable[[], bool], is_ready: bool) -> None:
    with lean_imports(PROMETHEUS):
        from devherd.exporter.standby import serve  # noqa: PLC0415 - only this process needs it
    from devherd.supervisor.sandbox import Sandbox  # noqa: PLC0415 - only this process needs it

    Sandbox(_standby_access(config)).enter()
    serve(config, why, announce, is_ready=is_ready)


def _preload() -> None:
    import devherd.device_plugin.child  # noqa: PLC0415, F401 - shared by the children


def _preload_wanted(config: ResolvedConfig) -> None:
    if config.is_dra:  # with TLS, for Prepare reads claims
        import devherd.dra.main  # noqa: PLC0415, F401 - shared by the two children


def _scanner_access(settings: Settings, _name: str) -> Access:
    """Reads the host, writes the run directory, CDI specs and, kept across boots, the lost devices."""
    lasting = (settings.lasting_directory,) if settings.lasting_directory else ()
    return Access(
        read=(Path("/"),),
        write=(settings.run_dir, *lasting, *map(_nearest, _directories_for_others(settings))),
        made=lasting,
        follows=(settings.run_dir, *lasting),
        modes=True,
        families=(socket.AF_UNIX, socket.AF_NETLINK),
        capabilities=(
            Capability.DAC_OVERRIDE,  # files that are not root's
            Capability.DAC_READ_SEARCH,
            Capability.SYSLOG,  # the kernel log, where kernel.dmesg_restrict is 1
        ),
    )


def _directories_for_others(settings: Settings) -> Iterator[Path]:
    """The output directories of the configuration in force: a reload may have changed them."""
    with contextlib.suppress(ResolvedFileError):
        yield from read_resolved(settings.resolved_config_file).directories_for_others


def _nearest(path: Path) -> Path:
    """The path, or its nearest existing parent."""
    return next(place for place in (path, *path.parents) if place.exists())


_NAMES = tuple(map(Path, ("/etc", "/run/systemd/resolve")))
"""Files for name resolution; /etc has the system's certificates, too."""


def _serves_http(config: ResolvedConfig, _settings: Settings) -> bool:
    return bool(config.settings().listen_addresses)


def _exporter_access(settings: Settings, _name: str) -> Access:
    """Reads the run directory, /proc, files for name resolution and its certificates; writes its files; listens."""
    certificates, sockets = _web_directories(settings)
    return Access(
        read=(
            settings.run_dir,
            Path("/proc"),
            *_NAMES,
            *certificates,
        ),
        write=(settings.http_directory,),
        sockets=sockets,
        made=(settings.http_directory,),
        follows=(
            settings.run_dir,
            settings.http_directory,
            *certificates,
            *sockets,
        ),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
        listens=True,
        capabilities=(Capability.NET_BIND_SERVICE,),
    )


def _rehearsal_access(settings: Settings) -> Access:
    """The part of a resource child's access that needs no lock: where sockets are served."""
    return Access(sockets=settings.socket_directories, limits=_RESOURCE_LIMITS)


def _standby_access(config: ResolvedConfig) -> Access:
    """Reads files for name resolution and its certificates, listens. The run directory belongs to another instance."""
    certificates = tuple(config.web.directories())
    return Access(
        read=(*_NAMES, *certificates),
        sockets=tuple(config.settings().listen_directories),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
        listens=True,
        capabilities=(Capability.NET_BIND_SERVICE,),
    )


def _web_directories(settings: Settings) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The directories of certificates and those of Unix sockets, by the configuration in force."""
    try:
        config = read_resolved(settings.resolved_config_file)
    except ResolvedFileError:
        return (), ()
    return tuple(config.web.directories()), tuple(config.settings().listen_directories)


def _nvml_access(settings: Settings, name: str) -> Access:
    """Reads requests, the library and what operators clear, opens existing device nodes, writes facts and findings."""
    from devherd.sources.nvml.main import device_nodes  # noqa: PLC0415 - only needed once there is a request

    findings = settings.findings_directory / name
    pauses = settings.nvidia_pause_file.parent
    return Access(
        read=(
            settings.requests_directory,
            settings.findings_directory,
            pauses,
            settings.host_root,
            *map(Path, ("/etc", "/proc", "/sys")),
        ),
        write=(settings.facts_directory, findings),
        made=(settings.facts_directory, findings, pauses),
        follows=(settings.requests_directory, settings.facts_directory, findings, pauses),
        devices=tuple(device_nodes()),
        capabilities=(Capability.SYS_ADMIN,),  # NVIDIA's driver lets it see MIG devices
    )


def _external_access(settings: Settings, name: str) -> Access:
    """Reads the host, opens devices and runs programs, as monitors do; writes its findings and temporary files."""
    findings = settings.findings_directory / name
    return Access(
        read=(Path("/"),),
        write=(findings,),
        made=(findings, temporary_directory(findings)),
        follows=(settings.requests_directory, findings),
        devices=(Path("/dev"),),
        execute=(Path("/"),),
        families=(socket.AF_UNIX, socket.AF_NETLINK),
        capabilities=(Capability.DAC_READ_SEARCH,),
    )


def _kfd_access(settings: Settings, name: str) -> Access:
    """Reads its request, the topology and its helper's state, opens the device, and writes its findings."""
    findings, device = settings.findings_directory / name, settings.host_root / "dev/kfd"
    return Access(
        read=(settings.requests_directory, settings.host_root / "sys", Path("/proc")),
        write=(findings,),
        made=(findings,),
        follows=(settings.requests_directory, findings, device),
        devices=(device,),
        families=(socket.AF_UNIX,),
    )


def _monitor_access(settings: Settings, name: str) -> Access:
    """Reads its request and writes its findings. Connecting to Unix sockets needs no access."""
    findings = settings.findings_directory / name
    return Access(
        read=(settings.requests_directory,),
        write=(findings,),
        made=(findings,),
        follows=(settings.requests_directory, findings),
    )


def _kubernetes_access(settings: Settings, name: str) -> Access:
    """Reads the run directory, its token and the configurations to choose from, and asks the kubelet for pods.

    It writes records of what it has sent, feature files and, kept across boots, how labels were written and the label's
    value.
    """
    own = (settings.kubernetes_directory, settings.history_directory / name)
    configurations = (settings.configurations.directory,) if settings.configurations else ()
    features = _features_directory(settings)
    kept_label = kept_label_file(dict(settings.given_options), os.environ) if settings.configurations else None
    lasting = {*filter(None, (settings.lasting_directory, kept_label.parent if kept_label else None))}
    credentials = _credentials(settings)
    return Access(
        read=(settings.run_dir, *credentials, *configurations),
        write=(*own, *lasting, *features),
        made=(*own, *lasting),
        modes=bool(features),
        follows=(settings.run_dir, *own, *credentials, *configurations, *lasting, *features),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6),
        connects=True,
    )


def _credentials(settings: Settings) -> tuple[Path, ...]:
    """The directories of the token and certificates for the API server, and of what finds it by its name."""
    with contextlib.suppress(ResolvedFileError):
        if access := read_resolved(settings.resolved_config_file).api_access():
            names = () if _is_address(access.host) and (access.ca or access.ca_file) else _NAMES
            return tuple(sorted({SERVICE_ACCOUNT, *access.directories(), *names}))
    return (SERVICE_ACCOUNT,)


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return bool(socket.inet_pton(family, host))
    return False


def _features_directory(settings: Settings) -> tuple[Path, ...]:
    """The directory of Node Feature Discovery's worker, if labels are or were written to a file in it."""
    places = set()
    with contextlib.suppress(ResolvedFileError):
        config = read_resolved(settings.resolved_config_file)
        places = {config.feature_file.parent} if config.node_labels.write == "feature_file" else set()
    with contextlib.suppress(OSError):  # no descriptor is left, and the start fails for that
        written = spool.read_or_empty(settings.written_labels_file, spool_pb2.WrittenLabels)
        if written.write == "feature_file":
            places.add(Path(written.feature_file).parent)
    return tuple(sorted(places))


def _resource_access(settings: Settings, key: str) -> Access:
    """Reads its offer, writes its state and history, serves its socket.

    Connecting to Unix sockets needs no access.
    """
    offer, state = settings.resources_directory / key, settings.state_directory / key
    history = settings.history_directory / f"resource:{key}"
    return Access(
        read=(offer,),
        write=(state, history),
        made=(state, history),
        sockets=settings.socket_directories,
        follows=(offer, state, history, settings.socket_directory),
        limits=_RESOURCE_LIMITS,
    )


def _dra_access(settings: Settings, letter: str) -> Access:
    """Serves its drivers' sockets, reads devices and credentials, asks API server and kubelet.

    It writes its state and history, the claims and, for containers, CDI specs. The kubelet's directory of plugins has
    others' data, so it may go only into those of its drivers, which it names in its state: another one takes a new
    sandbox.
    """
    own = (spool.path_of(settings.dra_directory, letter).parent, settings.history_directory / f"dra:{letter}")
    claims = settings.prepared_claims_file.parent
    drivers = _driver_directories(settings, letter)
    made = drivers if settings.plugins_directory.is_dir() else ()
    cdi = _cdi_directory(settings)
    credentials = _credentials(settings)
    return Access(
        read=(settings.run_dir, *credentials),
        write=(*own, claims, *cdi),
        made=(*own, claims, *made),
        sockets=(settings.plugins_registry, *drivers),
        follows=(
            settings.run_dir,
            *own,
            claims,
            settings.plugins_registry,
            settings.plugins_directory,
            *drivers,
            *cdi,
            *credentials,
        ),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6),
        connects=True,
        limits=_RESOURCE_LIMITS,
    )


def _cdi_directory(settings: Settings) -> tuple[Path, ...]:
    """That of CDI specs, which the scanner makes: what has no static spec is not prepared."""
    with contextlib.suppress(ResolvedFileError):
        return (read_resolved(settings.resolved_config_file).cdi_directory,)
    return ()


def _driver_directories(settings: Settings, letter: str) -> tuple[Path, ...]:
    """The directories in which the drivers of a process have their service sockets."""
    from devherd.dra.sockets import service_socket  # noqa: PLC0415 - only needed with DRA, and loaded there

    with contextlib.suppress(OSError):  # no descriptor is left, and the start fails for that
        state = spool.read_or_empty(spool.path_of(settings.dra_directory, letter), spool_pb2.DraState)
        return tuple(service_socket(settings, driver.name, letter).parent for driver in state.drivers)
    return ()


def _holders_access(settings: Settings, _name: str) -> Access:
    """Writes its file. Connecting to Unix sockets needs no access."""
    directory = settings.holders_file.parent
    return Access(write=(directory,), made=(directory,), follows=(directory,))


def _asks_before_starts(config: ResolvedConfig, _settings: Settings) -> bool:
    return not config.is_dra and any(rule.advertise and rule.pre_start.is_on for rule in config.resources)


def _pre_start_access(settings: Settings, _name: str) -> Access:
    """Looks into processes to find who has devices open, and runs programs that reset devices.

    Landlock forbids looking into processes, so only owners and modes restrict its access to files.
    """
    own = settings.pre_start_socket.parent
    return Access(
        made=(own, temporary_directory(own)),
        follows=(settings.run_dir, own),
        execute=(Path("/"),),
        families=(socket.AF_UNIX, socket.AF_NETLINK),
        sees_processes=True,
        capabilities=(
            Capability.DAC_READ_SEARCH,
            Capability.SYS_PTRACE,
            Capability.SYS_ADMIN,
        ),  # a reset needs the last
    )


def _ledger_access(settings: Settings, name: str) -> Access:
    """Looks into processes, asks the kubelet, and writes its findings and its file; see `_pre_start_access`."""
    own, findings = settings.ledger_file.parent, settings.findings_directory / name
    return Access(
        made=(own, findings),
        follows=(settings.run_dir, settings.requests_directory, own, findings),
        sees_processes=True,
        capabilities=(Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE),
    )


_RESOURCE_LIMITS = MappingProxyType(
    {
        **DEFAULT_LIMITS,
        resource.RLIMIT_FSIZE: 64 * MEBIBYTE,  # the run directory is memory
        resource.RLIMIT_DATA: 1024 * MEBIBYTE,
        resource.RLIMIT_NOFILE: 4096,
    }
)


def _source(
    module: str,
    may: Callable[[Settings, str], Access],
    keys: Callable[[str], bool],
    *,
    starts_programs: bool = False,
) -> Program:
    """A program for the sources with these keys; each runs while the scanner has a request for it."""
    return Program(
        group="source",
        module=module,
        may=may,
        per_file=lambda settings: settings.requests_directory,
        suffix=".json",
        keys=keys,
        starts_programs=starts_programs,
    )


def _dra(letter: str) -> Program:
    """One of the two processes that serve DRA drivers."""
    return Program(
        group="dra",
        name=letter,
        module="devherd.dra.main",
        may=_dra_access,
        wanted=lambda config, _settings: config.is_dra,
        serves=True,
        hands_over=lambda _settings: True,
    )


DEVHERD = Programs(
    children=(
        Program(group="scanner", module="devherd.scanner.loop", may=_scanner_access, reloads=True),
        Program(
            group="exporter",
            module="devherd.exporter.main",
            may=_exporter_access,
            wanted=_serves_http,
            reloads=True,
        ),
        _source("devherd.sources.nvml.main", _nvml_access, lambda key: key == NVML),
        _source("devherd.sources.listener", _kfd_access, lambda key: key == AMD_KFD),
        _source(
            "devherd.sources.listener",
            _external_access,
            lambda key: key.startswith(EXTERNAL_PREFIX),
            starts_programs=True,
        ),
        _source("devherd.sources.listener", _monitor_access, lambda key: key in MONITORS),
        _source("devherd.ledger.main", _ledger_access, lambda key: key == LEDGER),
        Program(
            group="kubernetes",
            module="devherd.kubernetes.main",
            may=_kubernetes_access,
            wanted=needs_process,
            is_awaited=lambda config: config.is_dra,
        ),
        Program(
            group="pre-start",
            module="devherd.pre_start.main",
            may=_pre_start_access,
            wanted=_asks_before_starts,
            starts_programs=True,
        ),
        Program(
            group=HOLDERS,
            module="devherd.kubelet.holders",
            may=_holders_access,
            per_file=lambda settings: settings.requests_directory,
            suffix=".json",
            keys=lambda key: key == HOLDERS,
        ),
        Program(
            group="resource",
            module="devherd.device_plugin.child",
            may=_resource_access,
            per_file=lambda settings: settings.resources_directory,
            wanted=lambda config, _settings: not config.is_dra,
            serves=True,
            hands_over=lambda settings: settings.registration == "kubelet_socket",
        ),
        _dra("a"),
        _dra("b"),
    ),
    first_scan=_first_scan,
    preload=_preload,
    preload_wanted=_preload_wanted,
    preload_scan=_preload_scan,
    rehearse=_rehearse,
    admit=_admit,
    stand_by=_stand_by,
)
