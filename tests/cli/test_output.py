"""Output that cannot be written, standard streams that are missing, paths no kernel takes: one line, no traceback."""

import subprocess
import sys

import pytest
from command_line import COMMAND, Outcome, devherd


def shell(redirected, *words):
    """Run `devherd` with redirections only a shell can make."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *COMMAND, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin"})
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("scan", "--output", "json"),
        (
            "config",
            "schema",
        ),
        ("--help",),
        ("scan", "--help"),
    ],
)
def test_a_full_disk_is_told_in_a_line(words, tmp_path):
    """However much there is to write, and whenever it is written."""
    outcome = shell(">/dev/full", *words, *(() if "--help" in words else ("--host-root", tmp_path)))

    assert outcome.code == 1
    assert outcome.error_line.startswith("devherd: cannot write the output — No space left on device — ")


def test_a_scan_without_a_stdout_is_a_scan(tmp_path):
    """`>&-` throws the output away, as /dev/null does."""
    outcome = shell(">&-", "scan", "--host-root", tmp_path)

    assert (outcome.code, outcome.stderr) == (0, "")


def test_missing_standard_streams_are_opened_before_anything_else():
    """What is opened next must not get their numbers."""
    program = "from devherd.cli import output; output.prepare(); print('lost'); open('/proc/self/fd/2').close()"
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]

    assert subprocess.run(command, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("by_option", [True, False])
def test_a_host_root_too_long_for_the_kernel_is_told_in_a_line(by_option):
    """From the command line as from the environment."""
    path = "/" + "x" * 5000
    words, environment = (("--host-root", path), {}) if by_option else ((), {"DEVHERD_HOST_ROOT": path})

    outcome = devherd("scan", *words, environment=environment)

    assert outcome.code == 2
    assert "File name too long" in outcome.error_line
