"""The program `devherd`: runs one command and imports only the modules of that command.

An error is one line on stderr, `devherd: <what> — <why> — <what to do>`, and an exit code.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Sequence

from devherd.cli import output
from devherd.errors import DevherdError
from devherd.lean_imports import lean_imports

INTERRUPTED = 128 + 2  # the exit status that a shell reports for SIGINT
BROKEN_PIPE = 128 + 13  # and for SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` do not include the program's name."""
    output.prepare()
    words = sys.argv[1:] if arguments is None else arguments
    is_supervisor = arguments is None and words[:1] == ["run"]
    if arguments is None and words[:1] == ["__complete"]:
        from devherd.cli.completion import live

        print(*live(*words[1:3]), sep="\n")
        return 0
    if is_supervisor:
        from devherd import signals

        signals.remember()  # before all other imports: until then signals have their default action
        gc.disable()  # imports leave little to collect; supervisor/run.py says when it begins
    try:
        try:
            return _command(words, is_supervisor=is_supervisor)()
        finally:
            sys.stdout.flush()
    except DevherdError as error:
        if isinstance(error, output.OutputError):
            output.give_up()
        if is_supervisor:
            from devherd import log

            log.fail(error)
        else:
            print(f"devherd: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:  # `devherd scan | head`
        output.give_up()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(words: Sequence[str], *, is_supervisor: bool) -> Callable[[], int]:
    """The command that the words name. For the supervisor, imports are kept lean, because its children share them."""
    with lean_imports() if is_supervisor else contextlib.nullcontext():
        from devherd.cli import commands

        return commands.parsed(words)
