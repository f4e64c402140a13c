"""Print a script that completes devherd's commands, options and their values in a shell.

  devherd completion bash > /etc/bash_completion.d/devherd
  devherd completion zsh > "${fpath[1]}/_devherd"
  devherd completion fish > ~/.config/fish/completions/devherd.fish

Or for this shell alone: `source <(devherd completion bash)`.
"""

import argparse
import inspect
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devherd import spool
from devherd.cli.commands import COMMANDS, parser_of
from devherd.cli.options import COMMON_VALUES
from devherd.cli.parser import COMMON_TITLE, Parser, add_common_options
from devherd.errors import ExitCode
from devherd.proto import health_pb2, spool_pb2
from devherd.settings import DEFAULT_RUN_DIR, Settings

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
                example = (inner.epilog or "").removeprefix("example:\n").partition("\n\n")[0].strip()
                yield _reference(f"{name} {verb}", inner.description or "", example, inner)


def common_options() -> list[Option]:
    """The options that mean the same with every command, `--help` first."""
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
        is_action=name not in COMMANDS,
        options=[option for option in options if option.words],
        arguments=arguments,
    )


def _option(action: argparse.Action, *, is_common: bool) -> Option:
    takes_value = action.nargs != 0
    of_common = COMMON_VALUES.get(action.option_strings[0], ()) if is_common else ()
    choices = tuple(map(str, action.choices)) if action.choices else of_common
    name = str(action.metavar or "|".join(choices) or action.dest.upper()) if takes_value else ""
    if not action.option_strings and action.nargs in ("?", "*") and " " not in name:
        name = f"[{name}{'…' * (action.nargs == '*')}]"
    return Option(tuple(action.option_strings), name, action.help or "", choices, is_common)


def _actions(parser: argparse.ArgumentParser) -> "list[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001


_FILES = {"FILE": "-f", "DIR": "-d", "FILE.tar.gz": "-f", "DIRECTORY": "-d"}
"""compgen's option for values of this name."""
WORDS = "__complete"
"""The hidden command with which a completion script asks the running instance for words."""
_OF_DEVICES = ("explain", "cordon", "uncordon", "clear")
"""Commands whose arguments are `[RESOURCE] DEVICE`."""
_CTL = (
    "status",
    "start",
    "stop",
    "restart",
    "tail",
    "signal",
    "clear",
    "pid",
    "maintail",
    "update",
    "reload",
    "shutdown",
)
"""Useful actions of supervisorctl; the first eight take names of programs."""
_TOP = ("--help", "--version")


def bash(references: Sequence[Reference]) -> str:
    """The script for bash: a function for `complete -F`."""
    cases = "\n".join(line for reference in references for line in _bash_case(reference))
    return f"""\
# Completes devherd in bash; made by `devherd completion bash`.
_devherd() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=''
    local known='{_names(references)}'
    local word position
    COMPREPLY=()
    for ((position = 1; position < COMP_CWORD; position++)); do
        word="${{command:+$command }}${{COMP_WORDS[position]}}"
        [[ $known == *"|$word|"* ]] || [[ $known == *"|$word "* ]] || break
        command=$word
    done
    if [[ " {" ".join((*_OF_DEVICES, "forget", "ctl"))} " == *" $command "* && $current != -* ]] &&
        [[ $before != --* || $before == *=* ]]; then
        local IFS=$'\\n'
        COMPREPLY=($("${{COMP_WORDS[0]}}" {WORDS} "${{ZSH_VERSION:+whole}}" "${{COMP_LINE:0:$COMP_POINT}}" 2>/dev/null))
        return
    fi
    case "$command" in
{cases}
    '') [[ $current == -* ]] && COMPREPLY=($(compgen -W "{" ".join(_TOP)}" -- "$current")) ||
        COMPREPLY=($(compgen -W "$(_devherd_next '')" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$(_devherd_next "$command")" -- "$current")) ;;
    esac
}}
_devherd_next() {{
    case "$1" in
{_bash_groups(references)}
    esac
}}
complete -o default -F _devherd devherd
"""


def zsh(references: Sequence[Reference]) -> str:
    """The script for zsh: that of bash, by zsh's bashcompinit.

    If zsh autoloads the script from a directory of `fpath`, the script itself runs as the function at a shell's first
    completion, so it must complete as well as define.
    """
    return (
        f"#compdef devherd\nautoload -U +X bashcompinit && bashcompinit\n{bash(references)}"
        '[[ "${zsh_eval_context[-1]}" != loadautofunc ]] || _bash_complete -o default -F _devherd\n'
    )


def fish(references: Sequence[Reference]) -> str:
    """The script for fish: a line for each command, option and argument with choices."""
    return "# Completes devherd in fish; made by `devherd completion fish`.\n" + "".join(
        f"{line}\n" for reference in references for line in _fish_lines(reference)
    )


def _names(references: Sequence[Reference]) -> str:
    return "".join(f"|{reference.name}|" for reference in references)


def _bash_groups(references: Sequence[Reference]) -> str:
    """A case for each prefix of a command, with the words that may follow."""
    following: dict[str, dict[str, None]] = {}
    for reference in references:
        words = reference.name.split()
        for length in range(len(words)):
            following.setdefault(" ".join(words[:length]), {})[words[length]] = None
    return "\n".join(f"    {shlex.quote(begin)}) echo {' '.join(words)} ;;" for begin, words in following.items())


def _bash_case(reference: Reference) -> Iterator[str]:
    options = " ".join(word for option in reference.options for word in option.words)
    choices = " ".join(choice for argument in reference.arguments for choice in argument.choices)
    yield f"    {shlex.quote(reference.name)})"
    yield '        case "$before" in'
    for option in reference.options:
        completed = _compgen(option)
        if completed:
            yield f'        {"|".join(option.words)}) COMPREPLY=($(compgen {completed} -- "$current")); return ;;'
    yield "        esac"
    yield f'        COMPREPLY=($(compgen -W {shlex.quote(f"{options} {choices}".strip())} -- "$current"))'
    yield "        ;;"


def _compgen(option: Option) -> str:
    if choices := option.choices or _presets(option):
        return f"-W {shlex.quote(' '.join(choices))}"
    if option.metavar in _FILES:
        return _FILES[option.metavar]
    return "-W ''" if option.metavar else ""


def _presets(option: Option) -> tuple[str, ...]:
    """The names of simulated nodes, for the option that takes one."""
    if option.metavar != "SPEC":
        return ()
    from devherd_sim.node.presets import PRESETS

    return tuple(PRESETS)


def _fish_lines(reference: Reference) -> Iterator[str]:
    *group, last = reference.name.split()
    condition = "__fish_use_subcommand"
    if group:
        condition = f"{_seen(group)}; and not __fish_seen_subcommand_from {last}"
        yield f"complete -c devherd -n __fish_use_subcommand -f -a {group[0]}"
    yield f"complete -c devherd -n {_quoted(condition)} -f -a {last} -d {_quoted(reference.summary)}"
    inside = _quoted(_seen(reference.name.split()))
    for option in reference.options:
        yield f"complete -c devherd -n {inside} {_fish_option(option)} -d {_quoted(option.help)}"
    if reference.name in (*_OF_DEVICES, "forget", "ctl"):
        asked = f"(devherd {WORDS} whole (commandline -cp))"
        yield f"complete -c devherd -n {inside} -f -a {_quoted(asked)}"
    for argument in reference.arguments:
        if argument.choices:
            yield f"complete -c devherd -n {inside} -f -a {_quoted(' '.join(argument.choices))}"


def _fish_option(option: Option) -> str:
    words = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.words]
    if choices := option.choices or _presets(option):
        words.append(f"-x -a {_quoted(' '.join(choices))}")
    elif option.metavar:
        words.append("-r" if option.metavar in _FILES else "-x")
    return " ".join(words)


def _seen(words: Sequence[str]) -> str:
    return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)


def _quoted(text: str) -> str:
    """The text in single quotes for fish, in which a backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def live(how: str, line: str) -> Iterator[str]:
    """What may follow a line that is being typed: actions, programs, resources, devices of the running instance.

    Bash splits words at `:`, so the output has only the part after the last `:`. `how` is `whole` for shells that
    do not split.
    """
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is open
        return
    current = "" if not words or line[-1:].isspace() else words.pop()
    done = 0 if how == "whole" else current.rfind(":") + 1
    for candidate in _candidates(words[1:]):
        if candidate.startswith(current):
            yield candidate[done:]


def _candidates(words: list[str]) -> Iterator[str]:
    command, *rest = words or [""]
    given, run_dir = _arguments(rest)
    if command == "ctl" and not given:
        yield from _CTL
        return
    settings = Settings(run_dir=Path(run_dir or os.environ.get("DEVHERD_RUN_DIR") or DEFAULT_RUN_DIR))
    try:
        known = spool.read_or_empty(settings.offers_file, spool_pb2.Offers)
        children = list(spool.read_or_empty(settings.children_file, spool_pb2.Children).children)
    except OSError:  # only root may read them
        return
    if command == "ctl" and given[0] in _CTL[:8]:
        yield from (child.name for child in children)
        yield from (offer.name for offer in spool.resources_in(known))
    elif command in _OF_DEVICES and not given:
        yield from _nameable(settings, with_pods=command == "explain")
    elif command in _OF_DEVICES and len(given) == 1:
        yield from (device.id for offer in known.offers if offer.name == given[0] for device in offer.devices)
    elif command == "forget" and not given:
        lost = spool.read_or_empty(settings.lost_file, health_pb2.Lost).devices
        yield from (device.device for device in lost)


def _nameable(settings: Settings, *, with_pods: bool) -> Iterator[str]:
    """Every word that names a resource, a device by each of its names or, for `devherd explain`, a pod."""
    from devherd.cli.instance import of_the_instance, pods_of
    from devherd.cli.subject import known_devices, words_of
    from devherd.instance.read import read_instance

    yield from dict.fromkeys(words_of(known_devices(settings, read_instance(settings), None)))
    pods = pods_of(of_the_instance(settings)) if with_pods else None
    yield from (f"{pod.namespace}/{pod.name}" for pod in (pods.pod_resources if pods else ()))


def _arguments(words: Sequence[str]) -> tuple[list[str], str]:
    """The positional words, without options and their values; and the value of --run-dir."""
    given, run_dir, before = [], "", ""
    for word in words:
        name, equals, value = word.partition("=")
        if before == "--run-dir" or (name == "--run-dir" and equals):
            run_dir = value if equals else word
        elif not word.startswith("-") and not before:
            given.append(word)
        before = word if word.startswith("--") and not equals else ""
    return given, run_dir


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[arguments.shell](list(references())), end="")
    return ExitCode.DONE
