"""From the configuration as it is written to the configuration in force. Pure."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from devherd.config import model, resolved
from devherd.config.external import External
from devherd.config.health_rule import HealthRule
from devherd.config.kernel_log import KernelLogOptions
from devherd.config.selectors import Match
from devherd.config.vendor_options import VendorOptions
from devherd.config.vendors import Vendors
from devherd.config.warnings import place_of, placed, warnings_of
from devherd.config.xid_policy import XidPolicy
from devherd.health.sources import AMD_EXPORTER, AMD_KFD, XPUMD
from devherd.health.xids import XID

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance")


def resolve(config: model.Config) -> resolved.Config:
    """The configuration in force."""
    return resolved.Config(
        common=config.settings(),
        cdi_dir=config.cdi_dir,
        scan=_part(resolved.ScanOptions, config.scan),
        health=_health(config),
        kubernetes=_part(resolved.KubernetesOptions, config.kubernetes),
        node_labels=_part(resolved.NodeLabels, config.node_labels),
        exporter=_part(resolved.ExporterOptions, config.exporter),
        web=config.web,
        vendors=_vendors(config.vendors),
        mps_root=config.vendors.nvidia.mps_root,
        device_info_dir=_device_info_dir(config.vendors),
        resources=[
            _rule(rule, place_of(config, ("resources", number))) for number, rule in enumerate(config.resources)
        ],
        native=config.native_json(),
        warnings=[placed(config, warning) for warning in warnings_of(config)],
    )


def _health(config: model.Config) -> resolved.HealthOptions:
    options, rules, external = config.health, ("health", "rules"), ("health", "external")
    return resolved.HealthOptions(
        poll=options.poll,
        recover_after=options.recover_after,
        forget_after=options.forget_after,
        breaker=options.breaker,
        flapping=options.flapping,
        rules=[
            *(_health_rule(rule, place_of(config, (*rules, number))) for number, rule in enumerate(options.rules)),
            *_xid_rules(options.xid),
        ],
        kernel_log=_kernel_log(options.kernel_log),
        external=[_external(one, place_of(config, (*external, number))) for number, one in enumerate(options.external)],
        monitors={
            AMD_EXPORTER: str(options.amd_exporter or ""),
            XPUMD: str(options.xpumd or ""),
            AMD_KFD: "auto" if options.amd_kfd else "",
        },
    )


def _health_rule(rule: HealthRule, place: str) -> resolved.HealthRule:
    return resolved.HealthRule(
        match=_match(rule.match),
        source=rule.source,
        reason=rule.reason,
        value=rule.value,
        action=rule.action,
        after=rule.after,
        hold=rule.hold,
        optional=rule.optional,
        place=place,
    )


def _xid_rules(xid: XidPolicy) -> Iterator[resolved.HealthRule]:
    for codes, action in xid.decisions():
        yield resolved.HealthRule(reason=[XID], value=codes, action=action, name="health.xid")


def _kernel_log(options: KernelLogOptions) -> resolved.KernelLogOptions:
    rules = [_part(resolved.KernelLogRule, rule) for rule in options.rules]
    return resolved.KernelLogOptions(enabled=options.enabled, optional=options.optional, rules=rules)


def _external(external: External, place: str) -> resolved.External:
    return resolved.External(
        name=external.name,
        match=_match(external.match),
        command=external.command,
        file=external.file,
        interval=external.interval,
        timeout=external.timeout,
        max_age=external.silence_seconds,
        on_silence=external.on_silence,
        optional=external.optional,
        place=place,
    )


def _match(match: Match) -> resolved.Match:
    exceptions = [resolved.Selector(facts=exception.patterns()) for exception in match.exclude]
    return resolved.Match(facts=match.patterns(), exclude=exceptions)


def _device_info_dir(vendors: Vendors) -> Path | None:
    return vendors.rdma.device_info_dir if vendors.rdma.mode == "sriov" and vendors.rdma.enabled else None


def _rule(rule: model.ResourceRule, place: str) -> resolved.ResourceRule:
    return resolved.ResourceRule(
        match=_match(rule.match),
        name=rule.name,
        advertise=rule.advertise,
        sharing=_part(resolved.Sharing, rule.sharing),
        preferred=rule.preferred,
        optional=rule.optional,
        place=place,
    )


def _vendors(vendors: Vendors) -> dict[str, resolved.VendorOptions]:
    return {name: _options(getattr(vendors, name)) for name in type(vendors).model_fields}


def _options(options: VendorOptions) -> resolved.VendorOptions:
    return resolved.VendorOptions(
        enabled=options.enabled,
        preferred=options.preferred(shared=False),
        preferred_shared=options.preferred(shared=True),
    )


def _part(kind: type[Part], section: object) -> Part:
    """What the resolved form keeps of a section."""
    return kind(**{field.name: getattr(section, field.name) for field in fields(kind)})
