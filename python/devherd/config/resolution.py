"""From the configuration as it is written to the configuration in force. Pure."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from devherd.config import model, resolved
from devherd.config.vendors import VendorOptions, Vendors
from devherd.config.warnings import warnings_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance")


def resolve(config: model.Config) -> resolved.Config:
    """The configuration in force."""
    return resolved.Config(
        common=config.settings(),
        cdi_dir=config.cdi_dir,
        scan=_part(resolved.ScanOptions, config.scan),
        health=_health(config.health),
        vendors=_vendors(config.vendors),
        mps_root=config.vendors.nvidia.mps_root,
        resources=[_rule(rule) for rule in config.resources],
        native=config.native_json(),
        warnings=list(warnings_of(config)),
    )


def _health(options: model.HealthOptions) -> resolved.HealthOptions:
    log = options.kernel_log
    rules = [_part(resolved.KernelLogRule, rule) for rule in log.rules]
    kept = resolved.KernelLogOptions(enabled=log.enabled, optional=log.optional, rules=rules)
    judged = [_health_rule(rule) for rule in options.rules]
    return replace(_part(resolved.HealthOptions, options), kernel_log=kept, rules=judged)


def _match(match: model.Match) -> resolved.Match:
    return resolved.Match(
        facts=match.patterns(),
        exclude=[resolved.Selector(facts=exception.patterns()) for exception in match.exclude],
    )


def _health_rule(rule: model.HealthRule) -> resolved.HealthRule:
    return replace(_part(resolved.HealthRule, rule), match=_match(rule.match))


def _rule(rule: model.ResourceRule) -> resolved.ResourceRule:
    return resolved.ResourceRule(
        match=_match(rule.match),
        name=rule.name,
        advertise=rule.advertise,
        sharing=_part(resolved.Sharing, rule.sharing),
        preferred=rule.preferred,
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
