"""The program `devherd`: runs one command and imports only the modules of that command.

An error is one line on stderr, `devherd: <what> — <why> — <what to do>`, and an exit code.
"""

import sys
from collections.abc import Sequence

from devherd.cli import output
from devherd.errors import DevherdError

INTERRUPTED = 128 + 2  # what a shell makes of SIGINT
BROKEN_PIPE = 128 + 13  # and of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are those after the program's name. Returns the exit code."""
    output.prepare()
    try:
        from devherd.cli.commands import run

        try:
            return run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except DevherdError as error:
        if isinstance(error, output.OutputError):
            output.give_up()
        print(f"devherd: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:  # `devherd scan | head`
        output.give_up()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
