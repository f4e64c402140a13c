"""Where the configuration comes from: option, environment, file, default, in that order."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from devherd.config import file_content, strict_yaml
from devherd.config.conflicts import conflicts
from devherd.config.errors import config_error
from devherd.config.foreign import what_else
from devherd.config.model import Config
from devherd.config.positions import Positions
from devherd.config.sources import Source, chosen_again, source_of
from devherd.config.web import Web
from devherd.config.web_config import WebConfig
from devherd.config.words import problems_of
from devherd.settings import Settings
from devherd.spool.identity import identity_of

COMMON_OPTIONS = (
    *("host_root", "kubelet_dir", "registration", "run_dir", "state_dir", "listen", "web_config"),
    *("log_level", "log_format"),
)
_PATHS = ("host_root", "kubelet_dir", "run_dir", "state_dir", "web_config")


def load(options: Mapping[str, str | None], environ: Mapping[str, str], label_value: str | None = None) -> Config:
    """The configuration from options (`config` and the common ones, None = not given), environment and file.

    `label_value` is that of the node's label which chooses the file (sources.py); None: nobody can tell.
    Raises ConfigError with every error found, UsageError when the file cannot be read.
    """
    source = source_of(options, environ, label_value)
    return _load(options, environ, source)


def without_a_file(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """What options and environment alone make. Raises ConfigError."""
    return valid("the options", "", given_values(options, environ))


def _load(options: Mapping[str, str | None], environ: Mapping[str, str], source: Source) -> Config:
    given = given_values(options, environ)
    path = source.file
    seen = (
        identity_of(path, follow_symlinks=True) if path else None
    )  # before it is read: what is put in place meanwhile is another version
    text = file_content.decoded(str(path), lambda: strict_yaml.read_text(path)) if path else ""
    config = valid(str(path or "the options"), text, given)
    config._web = _web(config.web_config)  # noqa: SLF001 - as below
    config._source, config._seen = path, seen  # noqa: SLF001 - set once here, read through `source` and `settings`
    config._configurations, config._label_value = source.configurations, source.label_value  # noqa: SLF001 - likewise
    config._given_options = tuple(  # noqa: SLF001 - likewise
        (name, given[name][0] if name in given else value) for name, value in options.items() if value is not None
    )
    return config


def reload(settings: Settings, environ: Mapping[str, str]) -> Config:
    """The configuration as it is now for an instance that runs with these settings. Raises as `load` does."""
    options = dict(settings.given_options)
    if settings.configurations is not None:
        return _load(options, environ, chosen_again(settings))
    return load({**options, "config": str(settings.config_path) if settings.config_path else None}, environ)


def judge(
    source: str, text: str, options: Mapping[str, str | None], environ: Mapping[str, str]
) -> tuple[Config, dict[str, str]]:
    """What a text makes, with options and environment; and its keys that one of these overrules, each with which.

    The text has to be right without them: they would hide what is wrong with it, until they go. `source` is its name in
    messages. Raises ConfigError.
    """
    positions = valid(source, text).positions or Positions(None)
    given = given_values(options, environ)
    config = valid(source, text, given)
    config._source = Path(source)  # noqa: SLF001 - as in `load`
    if config.web_config and config.web_config.exists():  # on the node, perhaps, and not here
        config._web = _web(config.web_config)  # noqa: SLF001 - likewise
    return config, {name: origin for name, (_, origin) in given.items() if positions.has((name,))}


def given_values(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The common options that are given: the value of each, and the option or variable that gives it."""
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
    return given | {name: (_from_here(value), origin) for name, (value, origin) in given.items() if name in _PATHS}


def _from_here(path: str) -> str:
    """Where somebody who types a path is, it may be relative; what a shell would have expanded stays, to be refused."""
    return path if not path or path.startswith(("~", "$")) or "\0" in path else str(Path(path).absolute())


def _web(path: Path | None) -> Web:
    """What a web configuration file says. Raises as `load` does."""
    if path is None:
        return Web()
    source = str(path)
    text = file_content.decoded(source, lambda: strict_yaml.read_text(path, f"{strict_yaml.CURE} with --web-config"))
    content, positions = file_content.parsed(source, text)
    try:
        return WebConfig.model_validate(content).in_force(path.absolute())
    except ValidationError as error:
        raise config_error(source, problems_of(error, WebConfig), positions) from None


def valid(source: str, text: str, given: Mapping[str, tuple[str, str]] = MappingProxyType({})) -> Config:
    """The configuration that a text makes, with the values given beside it. Raises ConfigError."""
    content, positions = file_content.parsed(source, text, what_else)
    try:
        config = Config.model_validate(content | {name: value for name, (value, _) in given.items()})
        problems = conflicts(config)
    except ValidationError as error:
        problems = [*problems_of(error)]
    if problems:
        raise config_error(source, problems, positions, {name: origin for name, (_, origin) in given.items()})
    config._positions = positions  # noqa: SLF001 - as in `load`
    return config
