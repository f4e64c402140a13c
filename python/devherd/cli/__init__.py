"""The program `devherd`: runs one command and imports only the modules of that command.

An error is one line on stderr, `devherd: <what> — <why> — <what to do>`, and an exit code.
"""

import sys
from collections.abc import Sequence

from devherd.cli import output
from devherd.errors import DevherdError

INTERRUPTED = 128 + 2  # the exit status that a shell reports for SIGINT
BROKEN_PIPE = 128 + 13  # and for SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` do not include the program's name."""
    output.prepare()
    if arguments is None and sys.argv[1:2] == ["__complete"]:
        from devherd.cli.completion import live

        print(*live(*sys.argv[2:4]), sep="\n")
        return 0
    if arguments is None and sys.argv[1:2] == ["run"]:
        from devherd.supervisor import signals

        signals.remember()  # before all other imports: until then signals have their default action
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except DevherdError as error:
        if isinstance(error, output.OutputError):
            output.give_up()
        if arguments is None and sys.argv[1:2] == ["run"]:
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


def _run(words: Sequence[str]) -> int:
    if words and words[0] == "run":
        import gc

        from devherd.lean_imports import lean_imports

        gc.disable()  # imports leave little to collect; supervisor/run.py says when it begins

        with lean_imports():
            from devherd.cli import run

        options = run.options_of(words[1:])
        if options is not None:
            return run.start(options)
    from devherd.cli.commands import run as run_command

    return run_command(words)
