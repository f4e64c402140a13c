"""`devherd scan --as dra`: what a DRA driver of this node would publish. Nothing is written to a cluster.

The objects are on stdout; what is not published, or not as the configuration has it, and problems are on stderr.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from devherd.dra.classes import classes_of
from devherd.dra.objects import class_objects, slices_of
from devherd.dra.pool_files import node_name, offers_from
from devherd.dra.pools import Notice, Pools, pools_of
from devherd.errors import ExitCode, UsageError
from devherd.health.policy import Verdict
from devherd.inventory import CDI, DeviceKey, Entry, key_of
from devherd.offers.rules import Offers
from devherd.proto import health_pb2
from devherd.text import first_lines

if TYPE_CHECKING:
    import argparse

    from devherd.config.model import Config
    from devherd.scanner.once import ScanReport

_TABLE_ALONE = ("watch", "explain", "unhealthy", "resource", "vendor")
"""Options that choose what a table shows, or its form; a pool is published whole."""


def run(arguments: "argparse.Namespace", config: "Config") -> int:
    """Scan and print. Raises UsageError."""
    from devherd.cli.scan import check_host_root, with_verdicts
    from devherd.config.loader import resolve
    from devherd.scanner.once import scan_once

    _refuse(arguments)
    node = node_name()
    check_host_root(config)
    resolved = resolve(config.model_copy(update={"front_end": "dra"}))
    report = with_verdicts(scan_once(resolved), config)
    offers, _ = offers_from(report.inventory.entries, report.offers) or (Offers(), {})
    pools = pools_of(offers, _verdicts(report))
    classes, of_classes = classes_of(pools, resolved.resources)
    _print([*slices_of(pools, node), *class_objects(classes)], arguments.output or "yaml")
    told = [Notice(" ".join(filter(None, (one.vendor, one.device or one.path))), one.error) for one in report.problems]
    _tell(told, "problems")
    _tell([*_left_out(report.inventory.entries.values()), *pools.notices, *of_classes], "notes")
    is_wrong = bool(report.problems) or _has_ill(pools)
    return ExitCode.PROBLEM_FOUND if arguments.fail_on_problem and is_wrong else ExitCode.DONE


def _refuse(arguments: "argparse.Namespace") -> None:
    if arguments.output == "table":
        raise UsageError("`--as dra` prints objects", "a table has no place for them", "use `--output yaml` or `json`")
    for option in _TABLE_ALONE:
        if getattr(arguments, option):
            raise UsageError(f"`--as dra` takes no `--{option}`", "a pool is published whole", "leave one out")


def _verdicts(report: "ScanReport") -> Mapping[DeviceKey, Verdict]:
    """By device: what the scan sees, and what the instance that serves this host holds against it."""
    found = {key: set(verdict.reasons) for key, verdict in report.judged.items()}
    for device in (device for offer in report.offers for device in offer.devices):
        found.setdefault(key_of(device), set()).update(device.reasons)
    for key, held in report.verdicts.items():
        known = found.setdefault(key, set())
        known.update(one.reason for one in held if not one.is_over and one.action == health_pb2.UNHEALTHY)
    return {key: Verdict(tuple(sorted(reasons))) for key, reasons in found.items() if reasons}


def _left_out(entries: Iterable[Entry]) -> Iterator[Notice]:
    """What is not offered although no rule says so: one notice for each vendor and reason."""
    devices: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if (why := entry.left_out.get(CDI)) is not None:
            devices.setdefault((entry.vendor, why), []).append(entry.device.id)
    for (vendor, why), (first, *others) in devices.items():
        more = f" and {len(others)} more" if others else ""
        yield Notice(f"{vendor} {first}{more}", f"not published: {why}")


def _print(objects: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
    elif objects:
        import yaml

        print(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, explicit_start=True), end="")


def _tell(notices: Iterable[Notice], kind: str) -> None:
    for line in first_lines([*_lines(notices)], kind):
        print(line, file=sys.stderr)


def _lines(notices: Iterable[Notice]) -> Iterator[str]:
    return (f"devherd: {one.what} — {one.why}" for one in notices)


def _has_ill(pools: Pools) -> bool:
    return any(device.subject.is_ill for devices in pools.devices.values() for device in devices)
