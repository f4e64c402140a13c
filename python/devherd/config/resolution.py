"""Converts the configuration as it is written to the configuration in force. Pure."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from devherd.config import model, resolved, sections
from devherd.config.checks import place_of, placed, warnings_of
from devherd.config.errors import Location
from devherd.config.vendors import Vendors
from devherd.reasons.xids import XID


def resolve(config: model.Config) -> resolved.Config:
    """The configuration in force."""
    values = {name: _value(config, (name,), getattr(config, name)) for name in _names(sections.Config)}
    health = values.pop("health")
    return resolved.Config(
        **values,
        health=replace(health, rules=[*health.rules, *_xid_rules(config.health.xid)]),
        common=config.settings(),
        web=config.web,
        vendors=_vendors(config.vendors),
        mps_root=config.vendors.nvidia.mps_root,
        device_info_dir=_device_info_dir(config.vendors),
        pools=[pool.name for pool in config.vendors.rdma.pools if config.vendors.rdma.enabled],
        native=config.native_json(),
        warnings=[placed(config, warning) for warning in warnings_of(config)],
    )


def _value(config: model.Config, location: Location, value: Any) -> Any:
    """A value, with sections converted to the records of the same name."""
    if isinstance(value, BaseModel):
        return _section(config, location, value, getattr(sections, type(value).__name__))
    if isinstance(value, list):
        return [_value(config, (*location, number), each) for number, each in enumerate(value)]
    return value


def _section(config: model.Config, location: Location, section: BaseModel, kind: type[Any]) -> Any:
    names = _names(kind)
    values = {name: _value(config, (*location, name), getattr(section, name)) for name in names}
    return kind(**(values | {"place": place_of(config, location)} if "place" in names else values))


def _xid_rules(xid: model.XidPolicy) -> Iterator[sections.HealthRule]:
    for codes, action in xid.decisions():
        yield sections.HealthRule(reason=[XID], value=codes, action=action, name="health.xid")


def _vendors(vendors: Vendors) -> dict[str, sections.VendorOptions]:
    names = _names(sections.VendorOptions)
    options = {section: getattr(vendors, section) for section in type(vendors).model_fields}
    return {
        section: sections.VendorOptions(**{name: getattr(one, name) for name in names})
        for section, one in options.items()
    }


def _device_info_dir(vendors: Vendors) -> Path | None:
    return vendors.rdma.device_info_dir if vendors.rdma.mode == "sriov" and vendors.rdma.enabled else None


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in fields(kind)]
