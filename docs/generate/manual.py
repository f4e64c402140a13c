"""docs/devherd.1: the manual page, from the same parsers as docs/commands.md. man(7) has the language."""

from collections.abc import Iterator

from devherd.cli.completion import EXIT_CODES, Option, Reference, common_options, references

_WIDEST = 60
"""Of a list of choices; longer ones are in the description."""
NAME, SUFFIX = "devherd", ".1"
_HEAD = r""".\" Made by `make docs-pages`.
.TH DEVHERD 1 "" "devherd" "User Commands"
.SH NAME
devherd \- one supervisor for every FPGA, GPU and other device on a Kubernetes node
.SH SYNOPSIS
.B devherd
.I COMMAND
.RI [ OPTIONS ]
.br
.B devherd help
.I COMMAND
.SH DESCRIPTION
devherd scans a node for devices, serves each resource type to the kubelet by a process of its own, and reports each
device's health. Errors are one line: what failed, why, and what to do.
"""
_COMMON = r"""Each is also an environment variable DEVHERD_NAME and, except \-\-config, a key of the configuration.
Every command accepts all of them; its section lists those that have an effect.
"""
_FILES = r""".SH FILES
.TP
.I /etc/devherd/config.yaml
the configuration, if there is one
.TP
.I /run/devherd
the instance: control socket, logs, history, what it knows
.TP
.I /var/lib/kubelet
the kubelet's directory
.SH ENVIRONMENT
.TP
.BI DEVHERD_ NAME
each common option, such as DEVHERD_RUN_DIR; an option wins over it, and it over the configuration
.SH SEE ALSO
.BR supervisorctl (1)
"""


def page() -> str:
    """The page."""
    commands = "".join(line for one in references() for line in _section(one))
    codes = "".join(f".TP\n.B {code}\n{_escaped(text)}\n" for code, text in EXIT_CODES.items())
    common = "".join(map(_described, common_options()))
    return f"{_HEAD}.SH COMMANDS\n{commands}.SH COMMON OPTIONS\n{_COMMON}{common}.SH EXIT STATUS\n{codes}{_FILES}"


def _section(command: Reference) -> Iterator[str]:
    yield f".SS {_escaped(command.usage)}\n"
    for paragraph in command.description.split("\n\n"):
        if paragraph.startswith("  "):
            yield f".PP\n.nf\n{_escaped(paragraph)}\n.fi\n"
        else:
            yield f".PP\n{_escaped(paragraph)}\n"
    common = common_options()
    for option in [*command.arguments, *command.options]:
        if option not in common:
            yield _described(option)
    if names := [
        rf"\fB{_escaped(option.words[0])}\fR" for option in command.options if option in common and option.is_common
    ]:
        yield f".PP\nCommon options: {', '.join(names)}.\n"
    if command.example:
        yield f".PP\nExample:\n.PP\n.nf\n    {_escaped(command.example)}\n.fi\n"


def _described(option: Option) -> str:
    return f".TP\n{_tag(option)}\n{_escaped(' '.join(option.help.split())) or 'as above'}\n"


def _tag(option: Option) -> str:
    listed = "|".join(option.choices)
    value = listed if 0 < len(listed) <= _WIDEST else option.metavar
    words = ", ".join(rf"\fB{_escaped(word)}\fR" for word in option.words)
    return " ".join(filter(None, (words, rf"\fI{_escaped(value)}\fR" if value else "")))


def _escaped(text: str) -> str:
    r"""Text as it is to be read: backslash and hyphen, and what would begin a line with a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("%%", "%")
    escaped = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n"))
