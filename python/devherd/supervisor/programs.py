"""The programs of an instance, as data: group, name, main function and what each may touch.

What children share is imported before the forks, the rest in the child.
"""

import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from devherd.child import Child, ChildMain
from devherd.config import resolved_file
from devherd.config.host import nvml_answers
from devherd.config.resolved import Config
from devherd.config.resolved_file import ResolvedFileError
from devherd.health.sources import AMD_KFD, EXTERNAL, temporary_directory
from devherd.kubernetes import kept_label
from devherd.kubernetes.access import SERVICE_ACCOUNT
from devherd.kubernetes.request import written_labels
from devherd.settings import Settings
from devherd.supervisor.access import DEFAULT_LIMITS, MEBIBYTE, Access, Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One child, `group:name` in supervisorctl, or, with `per_file`, one child for each spool file of a directory."""

    group: str
    name: str = ""
    """Its name in the group; the group's own if empty. With `per_file` it is the file's key."""
    main: ChildMain
    may: Callable[[Settings, str], Access]
    """What a child may touch, by the settings and its name."""
    per_file: Callable[[Settings], Path] | None = None
    """The directory whose spool files are its children: one that appears is started, one that goes is stopped."""
    suffix: str | None = None
    """Of those files."""
    reloads: bool = False
    """Whether it reads the configuration, and so again at SIGHUP."""


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Programs:
    """Everything that the supervisor runs. Groups start in the order of their first program; the last stops last."""

    children: tuple[Program, ...]
    first_scan: Callable[[Config], None]
    """Runs before there are children, in a process of its own."""
    preload: Callable[[], None]
    """Imports what resource children and the exporter need, in the supervisor."""
    rehearse: Callable[[Config], None] = _nothing
    """What the first scan's process can do while it has to wait; raises when this instance could not do its work."""
    stand_by: Callable[[Config, str, Callable[[], bool], bool], None] = _nothing
    """Runs in a process of its own while another instance is waited for; the text is why. Killed at the end of it.

    The function tells operators that this one waits, to be called until it returns True: another may say so. The last
    argument: whether this one is ready to take over.
    """


def _scanner(child: Child) -> int:
    from devherd.scanner import main as scanner  # noqa: PLC0415 - nobody else needs it

    return scanner.main(child)


def _exporter(child: Child) -> int:
    from devherd.exporter.main import main  # noqa: PLC0415 - imported by _preload

    return main(child)


def _source(child: Child) -> int:
    if child.name == "source:nvml":
        from devherd.health.sources.nvml.main import main  # noqa: PLC0415 - nobody else needs it
    else:
        from devherd.health.sources.listener import main  # noqa: PLC0415 - likewise

    return main(child)


def _kubernetes(child: Child) -> int:
    if child.name == "kubernetes:labels":
        from devherd.kubernetes.labeller import main  # noqa: PLC0415 - nobody else needs it
    elif child.name == "kubernetes:config":
        from devherd.kubernetes.chooser import main  # noqa: PLC0415 - likewise
    else:
        from devherd.kubernetes.reporter import main  # noqa: PLC0415 - likewise

    return main(child)


def _resource(child: Child) -> int:
    from devherd.device_plugin.child import main  # noqa: PLC0415 - imported by _preload

    return main(child)


def _first_scan(config: Config) -> None:
    from devherd.scanner import main as scanner  # noqa: PLC0415 - in a process of its own

    scanner.first_scan(config)


def _rehearse(config: Config) -> None:
    from devherd.supervisor import rehearsal  # noqa: PLC0415 - in the process of the first scan

    rehearsal.rehearse(config, _rehearsal_access(config.settings()))


def _stand_by(config: Config, why: str, announce: Callable[[], bool], is_ready: bool) -> None:
    from devherd.exporter.standby import serve  # noqa: PLC0415 - nobody else needs it
    from devherd.supervisor.sandbox import Sandbox  # noqa: PLC0415 - likewise

    Sandbox(_standby_access(config)).enter()
    serve(config, why, announce, is_ready=is_ready)


def _preload() -> None:
    import devherd.device_plugin.child  # noqa: PLC0415 - shared by the children
    import devherd.exporter.main  # noqa: PLC0415, F401 - likewise: 4 MB less in the exporter


def _scanner_access(settings: Settings, _name: str) -> Access:
    """Reads the host, writes the run directory and CDI specs."""
    return Access(
        read=(Path("/"),),
        write=(settings.run_dir, *map(_nearest, _directories_for_others(settings))),
        follows=(settings.run_dir,),
        modes=True,
        families=(socket.AF_UNIX, socket.AF_NETLINK),
        capabilities=(
            Capability.DAC_OVERRIDE,  # files that are not root's
            Capability.DAC_READ_SEARCH,
            Capability.SYSLOG,  # the kernel log, where kernel.dmesg_restrict is 1
        ),
    )


def _directories_for_others(settings: Settings) -> Iterator[Path]:
    """Those of the configuration in force: a reload may have changed them."""
    with contextlib.suppress(ResolvedFileError):
        yield from resolved_file.read(settings.resolved_config_file).directories_for_others


def _nearest(path: Path) -> Path:
    """The directory, or while it is still to be made, the one in which it will be."""
    return next(place for place in (path, *path.parents) if place.exists())


def _exporter_access(settings: Settings, _name: str) -> Access:
    """Reads the run directory, /proc for the sizes of children, what resolves names, and its certificates."""
    certificates, sockets = _web_directories(settings)
    return Access(
        read=(
            settings.run_dir,
            Path("/proc"),
            Path("/etc"),
            Path("/run/systemd/resolve"),
            *certificates,
        ),
        write=(settings.allocatable_directory, settings.http_directory),
        sockets=sockets,
        made=(settings.http_directory,),
        follows=(
            settings.run_dir,
            settings.allocatable_directory,
            settings.http_directory,
            *certificates,
            *sockets,
        ),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
        listens=True,
        capabilities=(Capability.NET_BIND_SERVICE,),
    )


def _rehearsal_access(settings: Settings) -> Access:
    """Of what a resource child may touch, what is not yet this instance's alone: where sockets are served."""
    return Access(sockets=settings.socket_directories, limits=_RESOURCE_LIMITS)


def _standby_access(config: Config) -> Access:
    """Reads what resolves names, and its certificates: the run directory is another instance's."""
    certificates = tuple(config.web.directories())
    return Access(
        read=(Path("/etc"), Path("/run/systemd/resolve"), *certificates),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
        listens=True,
        capabilities=(Capability.NET_BIND_SERVICE,),
    )


def _web_directories(settings: Settings) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Where certificates are, and where Unix sockets will be, by the configuration in force."""
    try:
        config = resolved_file.read(settings.resolved_config_file)
    except ResolvedFileError:
        return (), ()
    return tuple(config.web.directories()), tuple(config.settings().listen_directories)


def _source_access(settings: Settings, name: str) -> Access:
    """By the source."""
    if name == "nvml":
        return _nvml_access(settings, name)
    if name == AMD_KFD:
        return _kfd_access(settings, name)
    return _external_access(settings, name) if name.startswith(EXTERNAL) else _monitor_access(settings, name)


def _nvml_access(settings: Settings, name: str) -> Access:
    """Reads its request and the library, opens the nodes that there are, and writes its facts and findings."""
    from devherd.health.sources.nvml.main import device_nodes  # noqa: PLC0415 - nobody needs it before there is a request

    findings = settings.findings_directory / name
    return Access(
        read=(settings.requests_directory, settings.host_root, *map(Path, ("/etc", "/proc", "/sys"))),
        write=(settings.facts_directory, findings),
        made=(settings.facts_directory, findings),
        follows=(settings.requests_directory, settings.facts_directory, findings),
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
    """Reads its request, and writes its findings. Connecting is free."""
    findings = settings.findings_directory / name
    return Access(
        read=(settings.requests_directory,),
        write=(findings,),
        made=(findings,),
        follows=(settings.requests_directory, findings),
    )


def _kubernetes_access(settings: Settings, name: str) -> Access:
    """Reads offers, verdicts and its token, writes what it has told, and alone may call out."""
    features = _features_directory(settings) if name == "labels" else ()
    others, lasting = _read_for_the_api_server(settings, name), _lasting_directories(settings, name)
    return Access(
        read=(settings.run_dir, SERVICE_ACCOUNT, *others),
        write=(settings.told_directory, *lasting, *features),
        made=(settings.told_directory, *lasting),
        modes=bool(features),
        follows=(settings.run_dir, settings.told_directory, SERVICE_ACCOUNT, *others, *lasting, *features),
        families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6),
        connects=True,
    )


def _read_for_the_api_server(settings: Settings, name: str) -> tuple[Path, ...]:
    """What a simulated node has in the place of NVML, and which configurations there are."""
    if name == "labels":
        return tuple(nvml_answers(settings.host_root, None))
    return (settings.configurations.directory,) if name == "config" and settings.configurations else ()


def _lasting_directories(settings: Settings, name: str) -> tuple[Path, ...]:
    """Where is kept over a boot how labels were written, and what the label said that chooses the configuration."""
    if name == "config":
        place = kept_label.place_of(settings)
        return (place.parent,) if place else ()
    return (settings.lasting_directory,) if name == "labels" and settings.lasting_directory else ()


def _features_directory(settings: Settings) -> tuple[Path, ...]:
    """That of Node Feature Discovery's worker, where labels are or were written to a file in it."""
    places = set()
    with contextlib.suppress(ResolvedFileError):
        config = resolved_file.read(settings.resolved_config_file)
        places = {config.feature_file.parent} if config.node_labels.write == "feature_file" else set()
    written = written_labels(settings)
    if written is not None and written.write == "feature_file":
        places.add(Path(written.feature_file).parent)
    return tuple(sorted(places))


def _resource_access(settings: Settings, key: str) -> Access:
    """Reads its offer and what the kubelet has of it, writes its state and history, serves its socket.

    Connecting is free.
    """
    offer, state, answer = (
        directory / key
        for directory in (settings.resources_directory, settings.state_directory, settings.allocatable_directory)
    )
    history = settings.history_directory / f"resource:{key}"
    return Access(
        read=(offer, answer),
        write=(state, history),
        made=(state, answer, history),
        sockets=settings.socket_directories,
        follows=(offer, state, answer, history, settings.socket_directory),
        limits=_RESOURCE_LIMITS,
    )


_RESOURCE_LIMITS = MappingProxyType(
    {
        **DEFAULT_LIMITS,
        resource.RLIMIT_FSIZE: 64 * MEBIBYTE,  # the run directory is memory
        resource.RLIMIT_DATA: 1024 * MEBIBYTE,
        resource.RLIMIT_NOFILE: 4096,
    }
)


DEVHERD = Programs(
    children=(
        Program(group="scanner", main=_scanner, may=_scanner_access, reloads=True),
        Program(group="exporter", main=_exporter, may=_exporter_access, reloads=True),
        Program(
            group="source",
            main=_source,
            may=_source_access,
            per_file=lambda settings: settings.requests_directory,
            suffix=".json",
        ),
        Program(
            group="kubernetes",
            main=_kubernetes,
            may=_kubernetes_access,
            per_file=lambda settings: settings.requests_directory,
            suffix=".api",
        ),
        Program(
            group="resource",
            main=_resource,
            may=_resource_access,
            per_file=lambda settings: settings.resources_directory,
        ),
    ),
    first_scan=_first_scan,
    preload=_preload,
    rehearse=_rehearse,
    stand_by=_stand_by,
)
