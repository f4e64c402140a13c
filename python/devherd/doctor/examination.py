"""All topics, one after the other: one that cannot be examined says so and costs no other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devherd.config.resolved import Config
from devherd.doctor import devices, environment, kubelet, notifications, running, runtime, web
from devherd.doctor.line import Level, Line, problem
from devherd.errors import DevherdError
from devherd.scanner.scan_once import ScanReport, scan_once
from devherd.settings import Settings


@dataclass(frozen=True, slots=True)
class Examination:
    """The report, and what else was seen on the way."""

    lines: list[Line] = field(default_factory=list)
    scan: ScanReport | None = None

    @property
    def has_problem(self) -> bool:
        """Whether something does not work."""
        return any(line.level is Level.PROBLEM for line in self.lines)


def examine(config: Config | None, settings: Settings, complaint: str = "") -> Examination:
    """Look at everything. `config` is None where the configuration is bad: `complaint` says why, and there is no scan.

    `settings` are those of the instance, if there is one: its kubelet directory counts.
    """
    lines = list(_guarded(environment.TOPIC, lambda: environment.judge(environment.look())))
    if complaint:
        lines.append(problem("configuration", complaint, "devherd check-config FILE"))
    scan: ScanReport | None = None
    if config is not None:
        try:
            scan = scan_once(config)
        except DevherdError as error:
            lines.append(problem(devices.TOPIC, f"{error.what}: {error.why}", error.cure))
    resources = scan.resources if scan else []
    names = {resource.name for resource in resources}
    cdi_dir = config.cdi_dir if config else Path("/var/run/cdi")
    lines += _guarded(kubelet.TOPIC, lambda: kubelet.judge(kubelet.look(settings), names))
    if scan is not None:
        lines += devices.judge(resources, scan.problems)
        uses_cdi = devices.uses_cdi(resources)
        lines += _guarded(
            runtime.TOPIC, lambda: runtime.judge(runtime.look(settings.host_root), cdi_dir, uses_cdi=uses_cdi)
        )
    has_network_cards = devices.has_network_cards(resources)
    lines += _guarded(
        notifications.TOPIC,
        lambda: notifications.judge(notifications.look(settings.host_root), has_network_cards=has_network_cards),
    )
    if config is not None:
        guards = config.web
        lines += _guarded(web.TOPIC, lambda: web.judge(web.look(guards)))
    lines += _guarded(running.TOPIC, lambda: running.judge(running.look(settings)))
    return Examination(lines, scan)


def _guarded(topic: str, examined: Callable[[], Iterator[Line]]) -> list[Line]:
    try:
        return list(examined())
    except OSError as error:
        return [problem(topic, f"cannot be examined: {error}", "run it as root")]
