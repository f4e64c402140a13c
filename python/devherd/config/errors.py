"""A configuration that cannot be used: every error with its place in the file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from devherd.config.positions import Positions
from devherd.config.problem import Location, Problem, key_path
from devherd.errors import UsageError


class ConfigError(UsageError):
    """A file of keys that cannot be used: the first error, and how many more there are. `errors` has all of them."""

    def __init__(self, errors: Sequence[UsageError]) -> None:
        first, others = errors[0], len(errors) - 1
        more = f" ({others} more: see `devherd check-config`)" if others else ""
        super().__init__(first.what, first.why, first.cure + more)
        self.errors = errors


def config_error(
    source: str,
    problems: Iterable[Problem],
    positions: Positions | None = None,
    origins: Mapping[str, str] | None = None,
    subject: str = "configuration",
) -> ConfigError:
    """The error for these problems, in the order of the file; `subject` is what the file is.

    `origins` has the keys whose value is not the file's, each with the option or variable that gives it.
    """
    return ConfigError([*_errors(source, problems, positions, origins or {}, subject)])


def place(source: str, positions: Positions | None, location: Location, *, at_key: bool = False) -> str:
    """`config.yaml:3:5`."""
    return f"{source}:{positions.of(location, at_key=at_key)}" if positions else source


def _errors(
    source: str, problems: Iterable[Problem], positions: Positions | None, origins: Mapping[str, str], subject: str
) -> Iterator[UsageError]:
    for problem in problems:
        origin = origins.get(str(problem.location[0])) if problem.location else None
        if origin:
            yield UsageError(f"bad value of {origin}", problem.what, problem.cure)
            continue
        where = place(source, positions, problem.location, at_key=problem.at_key)
        path = key_path(problem.location)
        said = f"{path}: {problem.what}" if path else problem.what
        yield UsageError(f"bad {subject} in {where}", said, problem.cure)
