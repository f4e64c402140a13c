"""supervisorctl for the running instance: status, restart, stop, start, tail and all its other commands.

Without ARGS it is interactive. Programs are `scanner`, `exporter`, `source:<name>` and `resource:<resource name, with _
for />`, for which the resource name alone will do: `devherd ctl restart nvidia.com/gpu`.
"""

import argparse
import difflib
from collections.abc import Collection, Sequence

from devherd.cli.instance import reaching_settings, require_running
from devherd.cli.parser import Parser, add_common_options
from devherd.errors import ExitCode, UsageError

_OF_PROGRAMS = frozenset({"status", "start", "stop", "restart", "tail", "signal", "clear", "pid"})
"""Actions whose arguments, except options, signals and groups, are names of programs."""
_ANY = frozenset({"all", "stdout", "stderr"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="passed to supervisorctl; resource names are known"
    )


def run(arguments: argparse.Namespace) -> int:
    """Hand over to supervisorctl, which ends the process with its own exit code.

    Raises UnreachableError, and UsageError for a program that the instance does not have.
    """
    given = _own_options(arguments)
    if given[:1] == ["fg"]:  # otherwise supervisorctl fails with an error of its own
        cure = f"devherd ctl tail -f {' '.join(given[1:]) or 'scanner'}"
        raise UsageError("`fg` is not possible", "no program of devherd reads from a terminal", cure)
    settings = reaching_settings(arguments)
    require_running(settings)
    from supervisor import supervisorctl

    from devherd.instance.read import read_children

    words = named(given, read_children(settings).children)
    supervisorctl.main(["-c", str(settings.supervisord_conf), *words])
    return ExitCode.DONE


def _own_options(arguments: argparse.Namespace) -> list[str]:
    """Parse the common options among or after supervisorctl's words into `arguments`; returns the other words."""
    parser = Parser(prog="devherd ctl", add_help=False)
    add_common_options(parser, ())
    return parser.parse_known_args(arguments.arguments, arguments)[1]


def named(words: Sequence[str], programs: Collection[str]) -> list[str]:
    """The words, with names of resources replaced by their programs.

    Raises UsageError for a word that is neither a resource nor a program, if any program is known.
    """
    if not programs or not words or words[0] not in _OF_PROGRAMS:
        return list(words)
    first = 2 if words[0] == "signal" else 1
    return [*words[:first], *(_program(word, programs) for word in words[first:])]


def _program(word: str, programs: Collection[str]) -> str:
    from devherd import spool

    groups = {program.partition(":")[0] for program in programs}
    if word in programs or word in _ANY or word.startswith("-") or word.removesuffix(":*") in groups:
        return word
    as_resource = f"resource:{spool.key_of(word.removeprefix('resource:'))}"
    if as_resource in programs:
        return as_resource
    close = difflib.get_close_matches(word, programs, n=1)
    raise UsageError(
        f"no program is called `{word}`",
        f"choose from {', '.join(sorted(programs))}",
        f"did you mean `{close[0]}`?" if close else "see `devherd ctl status`",
    )
