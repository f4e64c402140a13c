"""devherd whose `run` waits less than usual: see devherd/waits.py.

Usage: `hurried.py WAITS COMMAND OPTIONS…`; WAITS is JSON.
"""

import json
import sys


def hurried(**waits: float) -> tuple[str, ...]:
    """The command of a testbed with these waits."""
    return sys.executable, __file__, json.dumps(waits)


def main(words: list[str], **waits: float) -> int:
    """Run one command and return its exit code."""
    from devherd import cli
    from devherd.cli import commands, run
    from devherd.waits import Waits

    command, *options = words
    if command != "run":
        return cli.main(words)
    return run.run(commands.parser_of(command).parse_args(options), Waits(**waits))


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], **json.loads(sys.argv[1])))
