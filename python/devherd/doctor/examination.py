"""Runs all topics of the doctor, one after the other; a topic that fails becomes one line of the report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devherd.config.resolved import ResolvedConfig
from devherd.doctor import environment, kubelet, notifications, running, runtime, web
from devherd.doctor.line import Level, Line, ill, ok, problem, warning
from devherd.errors import DevherdError
from devherd.proto import spool_pb2
from devherd.scanner.once import ScanReport, scan_once
from devherd.settings import Settings
from devherd.spool import size_of
from devherd.text import amount

DEVICES = "devices"


def judge_devices(
    resources: list[spool_pb2.Offer], problems: Sequence[spool_pb2.Problem], notices: Sequence[spool_pb2.Problem] = ()
) -> Iterator[Line]:
    """The report lines about a scan."""
    for resource in resources:
        count = amount(size_of(resource), "device")
        unhealthy = [device for device in resource.devices if device.reasons]
        if not unhealthy:
            yield ok(DEVICES, f"{resource.name}: {count}")
        for device in unhealthy:
            yield problem(DEVICES, ill(resource, device), f"devherd scan --explain --resource {resource.name}")
    if not resources:
        has_reason = bool(problems or notices)
        cure = "the following lines say why" if has_reason else "`devherd scan` shows where it looked"
        yield warning(DEVICES, "no device was found", cure)
    for one in problems:
        yield problem(DEVICES, f"{one.vendor}: {_said(one)}", "`devherd scan` shows it with its path")
    for one in notices:
        yield warning(DEVICES, _said(one), "nothing, if that is as intended")


def _said(one: spool_pb2.Problem) -> str:
    return f"{one.device or one.path}: {one.error}"


def has_network_cards(resources: Iterable[spool_pb2.Offer]) -> bool:
    """Whether a device belongs to a network card, which devlink may report on."""
    return any("rdma" in (device.vendor, resource.vendor) for resource in resources for device in resource.devices)


def uses_cdi(resources: Iterable[spool_pb2.Offer]) -> bool:
    """Whether any device is given to containers by CDI."""
    return any(device.edits.cdi_devices for resource in resources for device in resource.devices)


@dataclass(frozen=True, slots=True)
class Examination:
    """The report, and the scan that it is based on."""

    lines: list[Line] = field(default_factory=list)
    scan: ScanReport | None = None

    @property
    def has_problem(self) -> bool:
        """Whether any line is a problem."""
        return any(line.level is Level.PROBLEM for line in self.lines)


def examine(config: ResolvedConfig | None, settings: Settings, complaint: str = "") -> Examination:
    """Examine all topics. For a bad configuration, `config` is None, `complaint` is the reason, and there is no scan.

    `settings` are those of the running instance, if there is one.
    """
    lines = list(_guarded(environment.TOPIC, lambda: environment.judge(environment.look())))
    if complaint:
        lines.append(problem("configuration", complaint, "devherd config check FILE"))
    scan: ScanReport | None = None
    if config is not None:
        try:
            scan = scan_once(config)
        except DevherdError as error:
            lines.append(problem(DEVICES, f"{error.what}: {error.why}", error.cure))
    resources = scan.offers if scan else []
    names = {resource.name for resource in resources}
    cdi_dir = config.cdi_dir if config else Path("/var/run/cdi")
    lines += _guarded(kubelet.TOPIC, lambda: kubelet.judge(kubelet.look(settings), names))
    if scan is not None:
        lines += judge_devices(resources, scan.problems, scan.notices)
        lines += _guarded(
            runtime.TOPIC,
            lambda: runtime.judge(runtime.look(settings.host_root), cdi_dir, uses_cdi=uses_cdi(resources)),
        )
    lines += _guarded(
        notifications.TOPIC,
        lambda: notifications.judge(
            notifications.look(settings.host_root), has_network_cards=has_network_cards(resources)
        ),
    )
    if config is not None:
        guards = config.web
        lines += _guarded(web.TOPIC, lambda: web.judge(web.look(guards)))
    of_instance = _guarded(running.TOPIC, lambda: running.judge(running.look(settings)))
    known = {line.what for line in of_instance}  # the instance's lines have the reasons, the scan's do not
    lines = [line for line in lines if line.what not in known] + of_instance
    return Examination(lines, scan)


def _guarded(topic: str, examined: Callable[[], Iterator[Line]]) -> list[Line]:
    try:
        return list(examined())
    except OSError as error:
        return [problem(topic, f"cannot be examined: {error}", "run it as root")]
