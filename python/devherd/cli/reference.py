"""Commands and options as their parsers define them: for completion, the manual page and docs/commands.md."""

import argparse
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field

from devherd.cli.commands import COMMANDS, parser_of
from devherd.cli.options import COMMON_VALUES
from devherd.cli.parser import COMMON_TITLE, Parser, add_common_options

EXIT_CODES = {
    0: "done",
    1: "a problem was found (`doctor`, `explain`, `--fail-on-problem`, `--strict`), or what was asked for was not done",
    2: "wrong use or bad configuration",
    3: "another instance holds the run directory or the kubelet directory",
    4: "what was asked for cannot be reached: no instance runs, or no kubelet",
    130: "interrupted (Ctrl-C)",
    141: "the reader of the output has gone (`devherd scan | head`)",
}
"""The exit codes that scripts may rely on; `devherd ctl` exits with those of supervisorctl."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option; a positional argument if `words` is empty."""

    words: tuple[str, ...]
    metavar: str
    """Empty if it takes no value."""
    help: str
    choices: tuple[str, ...] = ()
    is_common: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """A command, or an action of one."""

    name: str
    summary: str
    description: str
    example: str
    usage: str
    is_listed: bool = True
    is_action: bool = False
    options: list[Option] = field(default_factory=list)
    arguments: list[Option] = field(default_factory=list)


def references() -> Iterator[Reference]:
    """Every command in the order of `devherd --help`, each followed by its actions."""
    for name, command in COMMANDS.items():
        parser = parser_of(name)
        yield _reference(name, command.summary, command.example, parser)
        for action in _actions(parser):
            for verb, inner in action.choices.items():
                example = (inner.epilog or "").removeprefix("example:\n").strip()
                yield _reference(f"{name} {verb}", inner.description or "", example, inner)


def common_options() -> list[Option]:
    """Those that mean the same with every command, `--help` first."""
    parser = Parser(prog="devherd")
    add_common_options(parser)
    return _reference("run", "", "", parser).options


def _reference(name: str, summary: str, example: str, parser: argparse.ArgumentParser) -> Reference:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001 - no public API
    common = {
        action
        for group in parser._action_groups  # noqa: SLF001 - as above
        if group.title == COMMON_TITLE
        for action in group._group_actions  # noqa: SLF001
    }
    options = [_option(action, is_common=action in common) for action in shown]
    arguments = [option for option in options if not option.words]
    usage = " ".join([f"devherd {name}", "[OPTIONS]", *(one.metavar for one in arguments)])
    return Reference(
        name=name,
        summary=summary,
        description=inspect.cleandoc(parser.description or ""),
        example=example,
        usage=usage,
        is_listed=COMMANDS[name].is_listed if name in COMMANDS else True,
        is_action=name not in COMMANDS,
        options=[option for option in options if option.words],
        arguments=arguments,
    )


def _option(action: argparse.Action, *, is_common: bool) -> Option:
    takes_value = action.nargs != 0
    of_common = COMMON_VALUES.get(action.option_strings[0], ()) if is_common else ()
    choices = tuple(map(str, action.choices)) if action.choices else of_common
    name = str(action.metavar or "|".join(choices) or action.dest.upper()) if takes_value else ""
    if not action.option_strings and action.nargs in ("?", "*"):
        name = f"[{name}{'…' * (action.nargs == '*')}]"
    return Option(tuple(action.option_strings), name, action.help or "", choices, is_common)


def _actions(parser: argparse.ArgumentParser) -> "list[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
