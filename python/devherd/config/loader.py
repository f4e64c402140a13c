"""Where the configuration comes from: option, environment, file, default, in that order."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import ValidationError

from devherd.config import strict_yaml
from devherd.config.conflicts import conflicts
from devherd.config.errors import ConfigError, explain
from devherd.config.model import Config
from devherd.config.web import Web
from devherd.config.web_config import WebConfig
from devherd.settings import Settings
from devherd.spool.identity import identity_of

DEFAULT_PATH = Path("/etc/devherd/config.yaml")
COMMON_OPTIONS = (
    *("host_root", "kubelet_dir", "registration", "run_dir", "state_dir", "listen", "web_config"),
    *("log_level", "log_format"),
)


def load(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """The configuration from options (`config` and the common ones, None = not given), environment and file.

    Raises ConfigError with every error found, UsageError when the file cannot be read.
    """
    given = _given(options, environ)
    path = file_of(options, environ)
    seen = (
        identity_of(path, follow_symlinks=True) if path else None
    )  # before it is read: what is put in place meanwhile is another version
    content = _content(str(path), lambda: strict_yaml.read_text(path)) if path else {}
    merged = content | {name: value for name, (value, _) in given.items()}
    config = _valid(merged, str(path or "the options"), {name: origin for name, (_, origin) in given.items()})
    config._web = _web(config.web_config)  # noqa: SLF001 - as below
    config._source, config._seen = path, seen  # noqa: SLF001 - set once here, read through `source` and `settings`
    config._given_options = tuple((name, value) for name, value in options.items() if value is not None)  # noqa: SLF001
    return config


def reload(settings: Settings, environ: Mapping[str, str]) -> Config:
    """The configuration as it is now for an instance that runs with these settings. Raises as `load` does."""
    path = str(settings.config_path) if settings.config_path else None
    return load({**dict(settings.given_options), "config": path}, environ)


def judge(
    source: str, text: str, options: Mapping[str, str | None], environ: Mapping[str, str]
) -> tuple[Config, dict[str, str]]:
    """What a text makes, with options and environment; and its keys that one of these overrules, each with which.

    The text has to be right without them: they would hide what is wrong with it, until they go. `source` is its name in
    messages. Raises ConfigError.
    """
    content = _content(source, lambda: text)
    _valid(content, source)
    given = _given(options, environ)
    config = _valid(content | {name: value for name, (value, _) in given.items()}, source)
    config._source = Path(source)  # noqa: SLF001 - as in `load`
    if config.web_config and config.web_config.exists():  # on the node, perhaps, and not here
        config._web = _web(config.web_config)  # noqa: SLF001 - likewise
    return config, {name: origin for name, (_, origin) in given.items() if name in content}


def _given(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The common options that are given, each with the option or variable that gives it."""
    given = {
        name: (value, f"--{name.replace('_', '-')}")
        for name in COMMON_OPTIONS
        if (value := options.get(name)) is not None
    }
    for name in COMMON_OPTIONS:
        variable = f"DEVHERD_{name.upper()}"
        value = environ.get(variable)
        if name not in given and value is not None and (value or name == "listen"):  # empty is unset, but for `listen`
            given[name] = (value, variable)
    return given


def _valid(content: Mapping[str, Any], source: str, origins: Mapping[str, str] = MappingProxyType({})) -> Config:
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        raise ConfigError(source, list(explain(error, origins))) from None
    conflicting = conflicts(config)
    if conflicting:
        raise ConfigError(source, conflicting)
    return config


def _web(path: Path | None) -> Web:
    """What a web configuration file says. Raises as `load` does."""
    if path is None:
        return Web()
    source = str(path)
    content = _content(source, lambda: strict_yaml.read_text(path, "--web-config"))
    try:
        return WebConfig.model_validate(content).in_force(path.parent.absolute())
    except ValidationError as error:
        raise ConfigError(source, list(explain(error, {}, WebConfig))) from None


def file_of(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one given, or the default one if it is there."""
    if given := options.get("config") or environ.get("DEVHERD_CONFIG"):
        return Path(given)
    return DEFAULT_PATH if DEFAULT_PATH.exists() else None


def _content(source: str, read: Callable[[], str]) -> dict[str, Any]:
    try:
        content = strict_yaml.parse(read())
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"byte {error.start} is not UTF-8 text"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(source, [strict_yaml.explain(error)]) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(source, ["the file must be a mapping of keys, like `scan: {period: 5s}`"])
    return {str(key): value for key, value in content.items()}
