"""The common options, without pydantic: commands that need only an instance's directories validate nothing else.

Options take precedence over the environment, and the environment over the file.
"""

from collections.abc import Mapping
from pathlib import Path

from devherd.config import yaml_file
from devherd.config.chosen_file import file_of
from devherd.config.errors import Positions, Problem, WrongValueError, config_error
from devherd.config.values import absolute_path, kubelet_path
from devherd.settings import COMMON_OPTIONS, Settings

_OF_THE_KUBELET = ("kubelet_dir", "kubelet_root_dir")
_OF_AN_INSTANCE = ("kubelet_dir", "kubelet_root_dir", "run_dir", "state_dir")
"""The options that commands need to reach an instance."""


def given_values(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The common options that are given, by name: the value, and the option or variable that gives it."""
    given = {
        name: (value, f"--{name.replace('_', '-')}")
        for name in COMMON_OPTIONS
        if (value := options.get(name)) is not None
    }
    for name in COMMON_OPTIONS:
        variable = f"DEVHERD_{name.upper()}"
        value = environ.get(variable)
        if name not in given and value is not None and (value or name == "listen"):  # empty: unset, except `listen`
            given[name] = (value, variable)
    return given | {
        name: (_from_here(value), origin) for name, (value, origin) in given.items() if COMMON_OPTIONS[name].is_path
    }


def _from_here(path: str) -> str:
    """The absolute form of a path; `~` and `$` that no shell has expanded stay, and are refused later."""
    return path if not path or path.startswith(("~", "$")) or "\0" in path else str(Path(path).absolute())


def directories(options: Mapping[str, str | None], environ: Mapping[str, str], *, with_file: bool = True) -> Settings:
    """The directories of an instance. Reads the file only if neither options nor environment give the run directory.

    Errors in other keys of the file are ignored. Raises ConfigError for an error in one of these keys and for invalid
    YAML, UsageError if the file cannot be read.
    """
    given = given_values(options, environ)
    values: dict[str, object] = {name: value for name, (value, _) in given.items()}
    source, positions = "the options", Positions(None)
    path = file_of(options, environ) if with_file and "run_dir" not in given else None
    if path is not None:
        source = str(path)
        text = yaml_file.decoded(source, lambda: yaml_file.read_text(path))
        content, positions = yaml_file.parsed(source, text)
        values = {name: value for name, value in content.items() if value is not None} | values
    usual, found = Settings(), dict[str, Path]()
    problems = []
    for name in _OF_AN_INSTANCE:
        try:
            if name in values:
                check = kubelet_path if name in _OF_THE_KUBELET else absolute_path
                found[name] = Path(check(values[name]))
        except WrongValueError as error:
            problems.append(Problem((name,), error.what, error.cure))
    if problems:
        raise config_error(source, problems, positions, {name: origin for name, (_, origin) in given.items()})
    return Settings(
        run_dir=found.get("run_dir", usual.run_dir),
        kubelet_dir=found.get("kubelet_dir", usual.kubelet_dir),
        kubelet_root_dir=found.get("kubelet_root_dir"),
        state_dir=found.get("state_dir"),
    )
