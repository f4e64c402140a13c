"""docs/commands.md: every command, its options, an example, exit codes; from the parsers."""

from collections.abc import Iterator

from tables import table

from devherd.cli.reference import EXIT_CODES, Option, Reference, common_options, references

_HEAD = """\
# Commands

*Generated from the same source as `devherd help COMMAND` and the manual page `devherd.1` by `make docs-pages`.*

`devherd COMMAND [OPTIONS]`. An error is one line on stderr: what failed, why, and what to do.
`devherd completion bash`, `zsh` or `fish` prints a completion script.

"""
_COMMON = """\
## Common options

Each is also an environment variable `DEVHERD_<NAME>` and, except `--config`, a key of the configuration. Precedence:
option, environment, file, default. Every command accepts all of them; its section lists those that have an effect.

"""


def page() -> str:
    """The page."""
    every = list(references())
    commands = (one for one in every if not one.is_action)
    listed = table(("command", "does"), ((f"[`{one.name}`](#{_anchor(one)})", one.summary) for one in commands))
    codes = table(("exit code", "means"), ((str(code), text) for code, text in EXIT_CODES.items()))
    body = "".join(line for one in every for line in _section(one, _known(one, every)))
    exits = f"## Exit codes\n\n{codes}\n`devherd ctl` ends with the codes of supervisorctl.\n\n"
    common = table(("option", "means"), map(_row, common_options()))
    return f"{_HEAD}{listed}\n{exits}{_COMMON}{common}{body}"


def _anchor(command: Reference) -> str:
    return f"devherd-{command.name.replace(' ', '-')}"


def _known(command: Reference, every: list[Reference]) -> list[Option]:
    """The options that are described elsewhere: the common ones and, for an action, those of its command."""
    parents = (one for one in every if command.is_action and command.name.startswith(f"{one.name} "))
    return [*common_options(), *(option for parent in parents for option in parent.options)]


def _section(command: Reference, known: list[Option]) -> Iterator[str]:
    yield f"\n## devherd {command.name}\n\n"
    yield from _prose(command.description)
    yield f"`{command.usage}`\n"
    rows = [_row(option) for option in [*command.arguments, *command.options] if option not in known]
    if rows:
        yield f"\n{table(('option', 'means'), rows)}"
    shared = [option for option in command.options if option in known and option.is_common]
    if len(shared) + 1 == len(known):
        yield "\nCommon options: all.\n"
    elif names := [f"`{option.words[0]}`" for option in shared]:
        yield f"\nCommon options: {', '.join(names)}.\n"
    if command.example:
        yield f"\nExample: `{command.example}`\n"


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; of indented lines, which are commands, a list; as it is, what is indented further."""
    for paragraph in text.split("\n\n"):
        if "\n    " in paragraph:
            yield f"```text\n{paragraph}\n```\n\n"
        elif paragraph.startswith("  "):
            yield "".join(f"* `{' '.join(line.split())}`\n" for line in paragraph.split("\n")) + "\n"
        else:
            yield f"{paragraph}\n\n"


def _row(option: Option) -> tuple[str, str]:
    value = option.metavar if option.metavar and not option.choices else "|".join(option.choices)
    words = ", ".join(f"`{word}`" for word in option.words)
    shown = f"{words} `{value}`" if words and value else words or f"`{value}`"
    return shown, " ".join(option.help.replace("%%", "%").split())
