"""Print a script that completes devherd's commands, options and their values in a shell.

  devherd completion bash > /etc/bash_completion.d/devherd
  devherd completion zsh > "${fpath[1]}/_devherd"
  devherd completion fish > ~/.config/fish/completions/devherd.fish

Or for this shell alone: `source <(devherd completion bash)`.
"""

import argparse

from devherd.errors import ExitCode

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    from devherd.cli import completion_scripts
    from devherd.cli.reference import references

    print(getattr(completion_scripts, arguments.shell)(list(references())), end="")
    return ExitCode.DONE
