"""Where the configuration comes from: option, environment, file, default, in that order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from devherd.config import consistency, strict_yaml
from devherd.config.explain import ConfigError, explain
from devherd.config.model import Config
from devherd.settings import Settings

DEFAULT_PATH = Path("/etc/devherd/config.yaml")
COMMON_OPTIONS = ("host_root", "kubelet_dir", "run_dir", "listen", "log_level", "log_format")


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
    path, content = _read(options.get("config") or environ.get("DEVHERD_CONFIG"))
    merged = content | {name: value for name, (value, _) in given.items()}
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        origins = {name: origin for name, (_, origin) in given.items()}
        raise ConfigError(str(path or "the options"), list(explain(error, origins))) from None
    contradictions = consistency.errors(config)
    if contradictions:
        raise ConfigError(str(path or "the options"), contradictions)
    config._source = path  # noqa: SLF001 - set once here, read through `source`
    config._given_options = tuple((name, value) for name, value in options.items() if value is not None)  # noqa: SLF001
    return config


def reload(settings: Settings, environ: Mapping[str, str]) -> Config:
    """The configuration as it is now for an instance that runs with these settings. Raises as `load` does."""
    path = str(settings.config_path) if settings.config_path else None
    return load({**dict(settings.given_options), "config": path}, environ)


def changed_fixed_options(settings: Settings, config: Config) -> list[str]:
    """The options that a reload would change but that only a restart can."""
    new = config.settings()
    fixed = ("host_root", "kubelet_dir", "run_dir", "log_level", "log_format", "kubelet_check")
    return [name for name in fixed if getattr(new, name) != getattr(settings, name)]


def _read(given: str | None) -> tuple[Path | None, dict[str, Any]]:
    path = Path(given) if given else DEFAULT_PATH
    if not given and not path.exists():
        return None, {}
    try:
        content = strict_yaml.read(path)
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [f"byte {error.start} is not UTF-8 text"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(str(path), [strict_yaml.explain(error)]) from error
    if content is None:
        return path, {}
    if not isinstance(content, dict):
        raise ConfigError(str(path), ["the file must be a mapping of keys, like `scan: {period: 5s}`"])
    return path, {str(key): value for key, value in content.items()}
