"""The command line as a whole: help, names, errors, exit codes, quick and quiet."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap

import pytest
from command_line import COMMAND, devherd

from devherd.cli.commands import COMMANDS, parser_of
from devherd.cli.options import COMMON_OPTIONS
from devherd.text import version


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_the_common_options_that_mean_something(name):
    """What it does and how it is called. It takes the other options too: a script may give them to every command."""
    outcome = devherd(*name.split(), *(f"{option}=x" for option in COMMON_OPTIONS), "--help")

    assert (outcome.code, outcome.stderr) == (0, "")
    assert f"\nexample:\n  devherd {name}" in outcome.stdout
    assert [option for option in COMMON_OPTIONS if f"\n  {option} " in outcome.stdout] == [
        option for option in COMMON_OPTIONS if option in COMMANDS[name].options
    ]


@pytest.mark.parametrize("words", [["help", "scan"], ["help", "sim", "node"], ["help", "sim"]])
def test_help_of_a_command_is_what_its_own_option_says(words):
    """As in git and kubectl."""
    outcome = devherd(*words)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == devherd(*words[1:], "--help").stdout
    assert outcome.stdout.startswith(f"usage: devherd {' '.join(words[1:])} ")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_is_one_screen_of_the_commands_that_people_use(words):
    """Defect: 34 lines, five of them wider than 80 columns. 24 lines are a terminal's, one of them is the prompt's."""
    outcome = devherd(*words)
    lines = outcome.stdout.splitlines()

    assert (outcome.code, outcome.stderr) == (0, "")
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert named[:2] == ["scan", "status"]
    assert {*named} <= {name.split()[0] for name in COMMANDS}
    assert "devherd help --all" in lines[-1]


@pytest.mark.parametrize("words", [["--help", "--all"], ["help", "--all"]])
def test_the_whole_help_lists_every_command_with_what_it_does(words):
    """Those that hardly anybody needs, too."""
    outcome = devherd(*words)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert re.findall(r"^  (\S+(?: \S+)?) {2,}", outcome.stdout, re.MULTILINE) == list(COMMANDS)
    assert all(f" {command.summary}\n" in outcome.stdout for command in COMMANDS.values())
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_no_help_is_wider_than_80_columns(monkeypatch):
    """Of commands and of their actions: a terminal breaks longer lines anywhere."""
    monkeypatch.setenv("COLUMNS", "80")
    parsers = [parser_of(name) for name in COMMANDS]
    for parser in parsers:
        actions = parser._subparsers._group_actions if parser._subparsers else []
        parsers += [inner for action in actions for inner in action.choices.values()]
    wide = [line for parser in parsers for line in parser.format_help().splitlines() if len(line) > 80]

    assert len(parsers) > len(COMMANDS)
    assert wide == []


def test_the_nearest_command_is_told_first_and_no_list_of_all():
    """Defect: 25 names stood before it."""
    assert devherd("stats").error_line == (
        "devherd: unknown command `stats` — did you mean `devherd status`? — `devherd help --all` lists every command"
    )


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version_is_one_line(word):
    """For bug reports and scripts."""
    outcome = devherd(word, environment={"DEVHERD_REVISION": "0123abc"})

    assert (outcome.code, outcome.stdout) == (0, f"devherd {version()} (0123abc)\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command given"),
        (["scna"], "did you mean `devherd scan`?"),
        (["nonsense"], "unknown command `nonsense`"),
        (["--verison"], "did you mean `--version`?"),
        (["sim", "nod"], "did you mean `devherd sim node`?"),
        (["--run-dir", "/x", "scan"], "`--run-dir` is before the command"),
        (["scan", "--bogus"], "unknown option `--bogus`"),
        (["doctor", "--fix"], "see `devherd doctor --help`"),
        (["--bogus"], "unknown option `--bogus`"),
        (["events", "--limit", "few"], "bad value of --limit — `few` is not a number"),
        (
            ["run", "--host-root", "/etc/passwd"],
            "cannot use /etc/passwd — it is not a directory",
        ),
        (["run", "--host-root", "{empty}/nowhere"], "nowhere — it is not a directory — name the right one"),
        (
            ["run", "--kubelet-dir", "/etc/passwd"],
            "name the right one with --kubelet-dir",
        ),
        (["run", "--configs", "{empty}"], "put a file there"),
        (
            ["config", "check", "/dev/null"],
            "it is not a regular file — name a readable file, or `-` for standard input",
        ),
        (["config", "import", "{empty_file}"], "it is empty — give the plugin's file"),
        (["scan", "--out", "json"], "did you mean `--output`?"),
        (["scan", "--output", "xml"], "`xml` is not one of `table`, `json`, `yaml`"),
        (["scan", "--output", "json", "--watch"], "`--watch` shows a table"),
        (["labels", "node-1"], "`node-1` without `--remove`"),
        (["labels", "--dry-run"], "`--dry-run` without `--remove`"),
        (["labels", "--remove", "--output", "json"], "cannot print JSON"),
        (["status", "extra"], "unknown argument `extra`"),
        (["scan", "--config", "/nowhere/config.yaml"], "cannot read /nowhere/config.yaml"),
        (["scan", "--listen", "here"], "bad value of --listen — `here` is not an ADDRESS:PORT"),
        (["scan", "--log-level", "loud"], "--log-level"),
        (["scan", "--host-root", "/nowhere"], "cannot scan /nowhere"),
        (["status", "--kubelet-dir", "/k/device-plugins"], "give `/k`: devherd adds `device-plugins` itself"),
        (["run", "--kubelet-dir", "/k/device-plugins"], "give `/k`: devherd adds `device-plugins` itself"),
        (["config", "check", "--host-root", "/etc/passwd"], "cannot scan /etc/passwd"),
    ],
)
def test_a_wrong_use_is_told_in_one_line_and_exits_with_2(words, said, tmp_path):
    """What, why and what to do; never a traceback, never a page of usage."""
    empty, empty_file = tmp_path / "empty", tmp_path / "empty.yaml"
    empty.mkdir()
    empty_file.touch()
    outcome = devherd(*(word.format(empty=empty, empty_file=empty_file) for word in words))

    assert (outcome.code, outcome.stdout) == (2, "")
    assert said in outcome.error_line


def test_options_come_from_the_environment_too(tmp_path):
    """DEVHERD_CONFIG and its siblings; the option wins."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("nonsense: 1\n")

    assert devherd("scan", environment={"DEVHERD_CONFIG": str(bad)}).code == 2
    assert "DEVHERD_LISTEN" in devherd("scan", environment={"DEVHERD_LISTEN": "x"}).error_line
    good = tmp_path / "good.yaml"
    good.write_text("")
    assert devherd("config", "check", good, environment={"DEVHERD_CONFIG": str(bad)}).code == 0


def test_a_reader_that_closes_the_pipe_early_is_no_error():
    """`devherd config schema | head -1`, but with a reader that is gone before the first byte."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([*COMMAND, "config", "schema"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (141, "")


def as_in_the_foreground():
    """Interrupts are ignored, and so by each child, where a script has started these tests in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_is_quiet(tmp_path):
    """Ctrl-C ends a watched table with the shell's code for it and without a traceback."""
    config = tmp_path / "config.yaml"
    config.write_text("simulated: [{name: example.com/gpu, count: 1}]\n")
    process = subprocess.Popen(
        [*COMMAND, "scan", "--watch", "--config", config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_the_foreground,  # noqa: PLW1509 - no threads here
    )
    assert process.stdout.readline().endswith("Z\n")
    assert "RESOURCE" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (130, "")


def test_a_watched_table_takes_a_terminal_and_gives_it_back(tmp_path):
    """On a terminal the table stays in place, on a screen of its own."""
    config = tmp_path / "config.yaml"
    config.write_text("simulated: [{name: example.com/gpu, count: 1}]\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "scan", "--watch", "--config", config],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"PATH": "/usr/bin:/bin", "TERM": "xterm"},
        preexec_fn=as_in_the_foreground,  # noqa: PLW1509 - no threads here
    )
    os.close(theirs)
    shown = b""
    while b"example.com/gpu" not in shown:
        shown += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the other end closes
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)

    assert process.wait(timeout=60) == 130
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in shown


def test_a_terminal_without_the_characters_gets_others(tmp_path):
    """A Latin-1 locale cannot show an arrow; that must not end the command."""
    config = tmp_path / "config.yaml"
    config.write_text("simulated: [{name: example.com/gpu, count: 1}]\n")

    outcome = devherd("scan", "--explain", "--config", config, environment={"PYTHONIOENCODING": "latin-1"})

    explained, _, heads, device, *_ = outcome.stdout.splitlines()
    assert explained == "simulated gpu-0 ? example.com/gpu, by simulated's default name"
    assert (heads.split()[:3], device.split()) == (
        ["RESOURCE", "DEVICE", "HEALTH"],
        ["example.com/gpu", "gpu-0", "Healthy"],
    )
    assert (outcome.code, outcome.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["scan", "--help"], ["--version"]])
def test_help_loads_nothing_that_is_slow(words):
    """Completion and typing errors are answered without pydantic, rich or gRPC."""
    program = f"""
        import atexit, sys
        from devherd.cli import main
        slow = ("pydantic", "rich", "grpc", "yaml", "prometheus_client", "supervisor")
        atexit.register(lambda: print("slow:", [name for name in slow if name in sys.modules]))
        main({words})
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert said.splitlines()[-1] == "slow: []"
