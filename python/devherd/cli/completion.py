"""Print a script that completes devherd's commands, options and their values in a shell.

  devherd completion bash > /etc/bash_completion.d/devherd
  devherd completion zsh > "${fpath[1]}/_devherd"
  devherd completion fish > ~/.config/fish/completions/devherd.fish

Or for this shell alone: `source <(devherd completion bash)`.
"""

import argparse
import shlex
from collections.abc import Iterator, Sequence

from devherd.cli.reference import Option, Reference, references
from devherd.errors import ExitCode

_FILES = {"FILE": "-f", "DIR": "-d", "FILE.tar.gz": "-f", "DIRECTORY": "-d"}
"""compgen's option for values of this name."""


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
    case "$command" in
{cases}
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
    if option.choices:
        return f"-W {shlex.quote(' '.join(option.choices))}"
    if option.metavar in _FILES:
        return _FILES[option.metavar]
    return "-W ''" if option.metavar else ""


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
    for argument in reference.arguments:
        if argument.choices:
            yield f"complete -c devherd -n {inside} -f -a {_quoted(' '.join(argument.choices))}"


def _fish_option(option: Option) -> str:
    words = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.words]
    if option.choices:
        words.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.metavar:
        words.append("-r" if option.metavar in _FILES else "-x")
    return " ".join(words)


def _seen(words: Sequence[str]) -> str:
    return "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)


def _quoted(text: str) -> str:
    """The text in single quotes for fish, in which a backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[arguments.shell](list(references())), end="")
    return ExitCode.DONE
