"""docs/commands.md: every command, its options, an example, exit codes; from the parsers."""

from collections.abc import Iterator

from tables import table

from devherd.cli.reference import EXIT_CODES, Option, Reference, references

_HEAD = """\
# Commands

`devherd COMMAND [OPTIONS]`; `devherd help COMMAND` and the manual page `devherd.1` say the same. Errors are one line on
stderr: what failed, why, and what to do. `devherd completion bash`, `zsh` or `fish` prints a completion script.

"""
_COMMON = """
Common options, which are also environment variables `DEVHERD_<NAME>` and keys of the configuration, count in this
order: option, environment, file, default. Every command accepts all of them; the tables list those that mean something.
"""


def page() -> str:
    """The page."""
    every = list(references())
    listed = table(("command", "does"), ((f"[`{one.name}`](#{_anchor(one)})", one.summary) for one in every))
    codes = table(("exit code", "means"), ((str(code), text) for code, text in EXIT_CODES.items()))
    body = "".join(line for one in every for line in _section(one))
    exits = f"## Exit codes\n\n{codes}\n`devherd ctl` ends with the codes of supervisorctl.\n"
    return f"{_HEAD}{listed}\n{exits}{_COMMON}{body}"


def _anchor(command: Reference) -> str:
    return f"devherd-{command.name.replace(' ', '-')}"


def _section(command: Reference) -> Iterator[str]:
    yield f"\n## devherd {command.name}\n\n"
    yield from _prose(command.description)
    yield f"`{command.usage}`\n"
    rows = [_row(option) for option in [*command.arguments, *command.options] if option.words != ("-h", "--help")]
    if rows:
        yield f"\n{table(('option', 'means'), rows)}"
    if command.example:
        yield f"\nExample: `{command.example}`\n"


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; of indented lines, which are commands or keys, a list."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("  "):
            yield "".join(f"* `{' '.join(line.split())}`\n" for line in paragraph.split("\n")) + "\n"
        else:
            yield f"{paragraph}\n\n"


def _row(option: Option) -> tuple[str, str]:
    value = option.metavar if option.metavar and not option.choices else "|".join(option.choices)
    words = ", ".join(f"`{word}`" for word in option.words)
    shown = f"{words} `{value}`" if words and value else words or f"`{value}`"
    return shown, " ".join(option.help.replace("%%", "%").split())
