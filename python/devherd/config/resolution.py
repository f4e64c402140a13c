"""From the configuration as it is written to the configuration in force. Pure."""

from dataclasses import fields
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
        health=_part(resolved.HealthOptions, config.health),
        vendors=_vendors(config.vendors),
        mps_root=config.vendors.nvidia.mps_root,
        resources=[_rule(rule) for rule in config.resources],
        native=config.native_json(),
        warnings=list(warnings_of(config)),
    )


def _rule(rule: model.ResourceRule) -> resolved.ResourceRule:
    return resolved.ResourceRule(
        match=resolved.Match(
            facts=rule.match.patterns(),
            exclude=[resolved.Selector(facts=exception.patterns()) for exception in rule.match.exclude],
        ),
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
