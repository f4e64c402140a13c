"""Loads the configuration from options, environment, file and defaults, in this order of precedence."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from devherd.config import model, resolved, sections, yaml_file
from devherd.config.api_access import ApiAccess
from devherd.config.checks import conflicts, place_of, placed, problems_of, unknown_names_in, warnings_of
from devherd.config.chosen_file import ConfigSource, chosen_again, source_of
from devherd.config.common import given_values
from devherd.config.errors import Location, Positions, Problem, config_error
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd.config.web import Web
from devherd.config.yaml_file import decoded, parsed
from devherd.reasons.xids import XID
from devherd.settings import Settings
from devherd.spool import identity_of
from devherd.waits import USUAL_WAITS, Waits

PluginOf = Callable[[str], str]
"""Returns the name of the other device plugin that a text configures; empty if there is none."""


def _no_plugin(_text: str) -> str:
    return ""


def what_else(content: Any, text: str, plugin_of: PluginOf) -> Problem | None:
    """The problem of a file that has no key of devherd; None if it has one, or the kind of the file is unknown."""
    if isinstance(content, Mapping) and _is_of_the_chart(content):
        return Problem((), "these are the values of the Helm chart", "give what is below their key `config`")
    if isinstance(content, Mapping) and content.keys() & {field.alias or key for key, field in _FIELDS.items()}:
        return None
    if isinstance(content, Mapping) and {"apiVersion", "kind"} <= content.keys():
        kind = str(content["kind"])
        if kind == "ConfigMap" and not plugin_of(text):
            return Problem((), "this is a ConfigMap, not what is in it", "give the file that its `data` contains")
        return Problem((), f"this is a Kubernetes {kind}, not a configuration", _CONVERT)
    plugin = plugin_of(text) if content else ""
    return Problem((), f"this is the configuration of another plugin ({plugin})", _CONVERT) if plugin else None


_FIELDS = Config.model_fields
_OF_THE_CHART = {"config", "configs", "components", "image"}
"""Keys that only the chart's values have; `resources` and `vendors` are keys of both."""


def _is_of_the_chart(content: Mapping[str, Any]) -> bool:
    return bool(content.keys() & _OF_THE_CHART) and content.keys() & _FIELDS.keys() <= {"resources", "vendors"}


_CONVERT = "convert it with `devherd config import`"


def load(
    options: Mapping[str, str | None],
    environ: Mapping[str, str],
    label_value: str | None = None,
    plugin_of: PluginOf = _no_plugin,
) -> Config:
    """The configuration from options (`config` and the common ones, None = not given), environment and file.

    `label_value` is the value of the node's label that chooses the file (chosen_file.py); None if it is unknown.
    Raises ConfigError with every error found, UsageError when the file cannot be read.
    """
    source = source_of(options, environ, label_value)
    return _load(options, environ, source, plugin_of)


def _load(
    options: Mapping[str, str | None], environ: Mapping[str, str], source: ConfigSource, plugin_of: PluginOf
) -> Config:
    given = given_values(options, environ)
    path = source.file
    seen = (
        identity_of(path, follow_symlinks=True) if path else None
    )  # before the file is read: one that replaces it meanwhile is another version
    text = decoded(str(path), lambda: yaml_file.read_text(path)) if path else ""
    config = valid(str(path or "the options"), text, given, plugin_of)
    config._web = _web(config.web_config)  # noqa: SLF001 - as below
    config._api = _api(config.kubeconfig)  # noqa: SLF001 - as below
    config._source, config._seen = path, seen  # noqa: SLF001 - set once here, read through `source` and `settings`
    config._configurations, config._label_value = source.configurations, source.label_value  # noqa: SLF001 - as above
    config._given_options = tuple(  # noqa: SLF001 - as above
        (name, given[name][0] if name in given else value) for name, value in options.items() if value is not None
    )
    return config


def reload(settings: Settings, environ: Mapping[str, str], plugin_of: PluginOf = _no_plugin) -> Config:
    """The current configuration for an instance that runs with these settings. Raises as `load` does."""
    options = dict(settings.given_options)
    if settings.configurations is not None:
        return _load(options, environ, chosen_again(settings), plugin_of)
    file = str(settings.config_path) if settings.config_path else None
    return load({**options, "config": file}, environ, plugin_of=plugin_of)


def judge(
    source: str,
    text: str,
    options: Mapping[str, str | None],
    environ: Mapping[str, str],
    plugin_of: PluginOf = _no_plugin,
) -> tuple[Config, dict[str, str]]:
    """The configuration from a text, options and environment; and the option or variable that overrules a key, by key.

    The text must be valid without options and environment, which would hide its errors. `source` is its name in
    messages. Raises ConfigError.
    """
    content, positions = _parsed(source, text, plugin_of)
    alone = _valid(source, content, positions, {})
    given = given_values(options, environ)
    config = _valid(source, content, positions, given) if given else alone
    config._source = Path(source)  # noqa: SLF001 - as in `load`
    if config.web_config and config.web_config.exists():  # it may exist only on the node
        config._web = _web(config.web_config)  # noqa: SLF001 - as above
    config._api = _api(config.kubeconfig)  # noqa: SLF001 - as above
    return config, {name: origin for name, (_, origin) in given.items() if positions.has((name,))}


def _web(path: Path | None) -> Web:
    """The settings of a web configuration file. Raises as `load` does."""
    if path is None:
        return Web()
    source = str(path)
    text = decoded(source, lambda: yaml_file.read_text(path, f"{yaml_file.CURE} with --web-config"))
    content, positions = parsed(source, text)
    from devherd.config.web_config import WebConfig  # noqa: PLC0415 - models that most starts do without

    try:
        return WebConfig.model_validate(content).in_force(path.absolute())
    except ValidationError as error:
        raise config_error(source, problems_of(error, WebConfig), positions) from None


def access_at_start(options: Mapping[str, str | None], environ: Mapping[str, str]) -> ApiAccess | None:
    """The access to the API server before the file is known that its answer chooses. Raises as `load` does."""
    given = given_values(options, environ).get("kubeconfig")
    return _api(Path(given[0])) if given else ApiAccess.of_this_pod()


def _api(path: Path | None) -> ApiAccess | None:
    """What a kubeconfig file says; None without one: the kubelet's is not there before the node has joined its cluster.

    Raises as `load` does.
    """
    if path is None or not path.exists():
        return None
    from devherd.config import kubeconfig  # noqa: PLC0415 - most starts do without it

    return kubeconfig.read(path)


def valid(
    source: str,
    text: str,
    given: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    plugin_of: PluginOf = _no_plugin,
) -> Config:
    """The configuration from a text and the values in `given`, which take precedence. Raises ConfigError."""
    return _valid(source, *_parsed(source, text, plugin_of), given)


def _parsed(source: str, text: str, plugin_of: PluginOf) -> tuple[dict[str, Any], Positions]:
    return parsed(source, text, lambda content, text: what_else(content, text, plugin_of))


def _valid(source: str, content: dict[str, Any], positions: Positions, given: Mapping[str, tuple[str, str]]) -> Config:
    try:
        config = Config.model_validate(content | {name: value for name, (value, _) in given.items()})
        problems = conflicts(config)
    except ValidationError as error:
        problems = [*problems_of(error), *unknown_names_in(content)]
    if misread := list(yaml_file.misread(positions)):
        places = {problem.location for problem in misread}
        problems = [*misread, *(problem for problem in problems if problem.location not in places)]
    if problems:
        raise config_error(source, problems, positions, {name: origin for name, (_, origin) in given.items()})
    config._positions = positions  # noqa: SLF001 - as in `load`
    return config


def resolve(config: model.Config, waits: Waits = USUAL_WAITS) -> resolved.ResolvedConfig:
    """The configuration in force, with the `waits` of its instance."""
    values = {name: _value(config, (name,), getattr(config, name)) for name in _names(sections.Config)}
    health, is_dra = values.pop("health"), config.front_end == "dra"
    return resolved.ResolvedConfig(
        **values,
        health=replace(health, rules=[*health.rules, *_xid_rules(config.health.xid)]),
        common=replace(config.settings(), waits=waits),
        web=config.web,
        api=config.api,
        vendors=_vendors(config.vendors),
        mps_root=config.vendors.nvidia.mps_root,
        device_info_dir=None if is_dra else _device_info_dir(config.vendors),
        pools=[pool.name for pool in config.vendors.rdma.pools if config.vendors.rdma.enabled and not is_dra],
        ways=resolved.BY_CDI_ALONE if is_dra else resolved.DEVICE_PLUGIN_ALONE,
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
