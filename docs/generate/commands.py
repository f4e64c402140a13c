"""docs/commands.md: every command, its options, an example, exit codes; from the parsers."""

from collections.abc import Iterator

from tables import table

from devherd.cli.completion import EXIT_CODES, Option, Reference, common_options, references

_HEAD = """\
# Commands

*Generated from the same source as `devherd help COMMAND` and the manual page `devherd.1` by `make docs-pages`.*

Every command with its options, as `devherd help COMMAND` and the manual page have them. An error is one line on stderr:
what failed, why, and what to do.

"""
MOST_EXAMPLES = 8
"""Of one command on the page."""

_COMMON = """\
## Common options

Each is also an environment variable `DEVHERD_<NAME>` and, except `--config`, a key of the configuration. Precedence:
option, environment, file, default. Every command accepts all of them; its section lists those that have an effect.

"""


def page() -> str:
    """The page."""
    every = list(references())
    commands = [one for one in every if not one.is_action]
    listed = table(("command", "does"), ((f"[`{one.name}`](#{_anchor(one)})", one.summary) for one in commands))
    codes = table(("exit code", "means"), ((str(code), text) for code, text in EXIT_CODES.items()))
    actions = [one for one in every if one.is_action]
    body = "".join(line for one in commands for line in _section(one, actions))
    exits = f"## Exit codes\n\n{codes}\n`devherd ctl` ends with the codes of supervisorctl.\n\n"
    return f"{_HEAD}{listed}\n{exits}{_COMMON}{''.join(map(_item, common_options()))}{body}"


def _anchor(command: Reference) -> str:
    return f"devherd-{command.name.replace(' ', '-')}"


def _section(command: Reference, actions: list[Reference]) -> Iterator[str]:
    common = common_options()
    yield f"\n## devherd {command.name}\n\n"
    yield from _prose(command)
    if command.arguments:
        yield f"`{command.usage}`\n\n"
    own = [option for option in [*command.arguments, *command.options] if option not in common]
    yield from map(_item, own)
    shared = [option for option in command.options if option in common and option.is_common]
    if len(shared) + 1 == len(common):
        yield "\n" * bool(own) + "Common options: all.\n"
    elif names := [f"`{option.words[0]}`" for option in shared]:
        yield "\n" * bool(own) + f"Common options: {', '.join(names)}.\n"
    if of_command := [one for one in actions if one.name.startswith(f"{command.name} ")]:
        yield f"\nActions; `devherd {command.name} ACTION --help` has the options of each:\n\n"
        yield from (f"* `{one.name.removeprefix(command.name).strip()}`: {one.summary}\n" for one in of_command)
    if command.example != f"devherd {command.name}" and command.example not in command.description:
        yield "\n" * bool(own or shared) + f"Example: `{command.example}`\n"


def _prose(command: Reference) -> Iterator[str]:
    """Paragraphs; of indented lines, which are commands, a list. A longer list is in the command's help alone."""
    for paragraph in command.description.split("\n\n"):
        if "\n    " in paragraph:
            yield f"`devherd help {command.name}` lists them.\n\n"
        elif paragraph.count("\n") >= MOST_EXAMPLES:
            yield f"`devherd help {command.name}` has examples.\n\n"
        elif paragraph.startswith("  "):
            yield "".join(f"* `{' '.join(line.split())}`\n" for line in paragraph.split("\n")) + "\n"
        else:
            yield f"{paragraph}\n\n"


def _item(option: Option) -> str:
    return "* {}: {}\n".format(*_row(option))


def _row(option: Option) -> tuple[str, str]:
    value = option.metavar if option.metavar and not option.choices else "|".join(option.choices)
    words = ", ".join(f"`{word}`" for word in option.words)
    shown = f"{words} `{value}`" if words and value else words or f"`{value}`"
    return shown, " ".join(option.help.replace("%%", "%").split())
