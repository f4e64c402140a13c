"""Where the configuration comes from: option, environment, file, default, in that order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from devherd.config import strict_yaml
from devherd.config.conflicts import conflicts
from devherd.config.errors import ConfigError, explain
from devherd.config.model import Config
from devherd.settings import Settings
from devherd.spool.identity import identity_of

DEFAULT_PATH = Path("/etc/devherd/config.yaml")
COMMON_OPTIONS = ("host_root", "kubelet_dir", "registration", "run_dir", "listen", "log_level", "log_format")


def load(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """The configuration from options (`config` and the common ones, None = not given), environment and file.

    Raises ConfigError with every error found, UsageError when the file cannot be read.
    """
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
    path = _file(options.get("config") or environ.get("DEVHERD_CONFIG"))
    seen = (
        identity_of(path, follow_symlinks=True) if path else None
    )  # before it is read: what is put in place meanwhile is another version
    content = _read(path) if path else {}
    merged = content | {name: value for name, (value, _) in given.items()}
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        origins = {name: origin for name, (_, origin) in given.items()}
        raise ConfigError(str(path or "the options"), list(explain(error, origins))) from None
    conflicting = conflicts(config)
    if conflicting:
        raise ConfigError(str(path or "the options"), conflicting)
    config._source, config._seen = path, seen  # noqa: SLF001 - set once here, read through `source` and `settings`
    config._given_options = tuple((name, value) for name, value in options.items() if value is not None)  # noqa: SLF001
    return config


def reload(settings: Settings, environ: Mapping[str, str]) -> Config:
    """The configuration as it is now for an instance that runs with these settings. Raises as `load` does."""
    path = str(settings.config_path) if settings.config_path else None
    return load({**dict(settings.given_options), "config": path}, environ)


def _file(given: str | None) -> Path | None:
    if given:
        return Path(given)
    return DEFAULT_PATH if DEFAULT_PATH.exists() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = strict_yaml.read(path)
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [f"byte {error.start} is not UTF-8 text"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(str(path), [strict_yaml.explain(error)]) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(str(path), ["the file must be a mapping of keys, like `scan: {period: 5s}`"])
    return {str(key): value for key, value in content.items()}
