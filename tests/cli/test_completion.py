"""Completion scripts in the shells themselves, and the reference that they are made of."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from command_line import devherd

from devherd import spool
from devherd.cli.commands import COMMANDS
from devherd.cli.completion import EXIT_CODES, references
from devherd.errors import ExitCode
from devherd.proto import spool_pb2
from devherd.settings import Settings

MANUAL = Path(__file__).parents[2] / "docs/devherd.1"


COMMAND_DIRECTORY = Path(sys.executable).parent


def offered(words: list[str], directory: Path, line: str = "") -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    script = f"""
        source {directory}/completion
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
        COMP_LINE='{line or " ".join(words)}'
        COMP_POINT=${{#COMP_LINE}} PATH={COMMAND_DIRECTORY}:$PATH
        _devherd devherd '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-uc", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=directory,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory):
    """A directory with the script, a file and a directory."""
    directory = tmp_path_factory.mktemp("bash")
    (directory / "completion").write_text(devherd("completion", "bash").stdout)
    (directory / "node-1").mkdir()
    (directory / "node.yaml").touch()
    return directory


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["devherd", "sta"], ["status"]),
        (["devherd", "conf"], ["config"]),
        (["devherd", "config", ""], ["check", "show", "sample", "schema", "import"]),
        (["devherd", "sim", "k"], ["kubelet"]),
        (["devherd", "sim", ""], ["node", "fault", "monitor", "kubelet"]),
        (["devherd", "sim", "kubelet", "--grace"], ["--grace-period"]),
        (["devherd", "sim", "kubelet", "allocate", "--po"], ["--pod"]),
        (["devherd", "scan", "--out"], ["--output"]),
        (["devherd", "scan", "--output", ""], ["table", "json", "yaml"]),
        (["devherd", "scan", "--host-root", "nod"], ["node-1"]),
        (["devherd", "scan", "--config", "node"], ["node.yaml", "node-1"]),
        (["devherd", "run", "--registration", "p"], ["plugins_registry"]),
        (["devherd", "status", "--vendor", ""], []),
        (["devherd", "status", "--watch", "--un"], ["--unhealthy"]),
        (["devherd", "events", "--kind", "ver"], ["verdict"]),
        (["devherd", "completion", ""], ["-h", "--help", "bash", "zsh", "fish"]),
    ],
)
def test_bash_completes_commands_options_and_values(in_bash, words, wanted):
    """By the real bash."""
    assert sorted(offered(words, in_bash)) == sorted(wanted)


@pytest.fixture
def run_dir(tmp_path):
    """That of an instance with two resources."""
    attributes = {"slot": "slot-4", "serial": "SN-1652"}
    devices = [spool_pb2.Device(id="0000:03:00.0"), spool_pb2.Device(id="0000:83:00.0", attributes=attributes)]
    offers = [
        spool_pb2.Offer(name="amd.com/gpu", front_end=spool.DEVICE_PLUGIN_FRONT_END, devices=devices),
        spool_pb2.Offer(name="nvidia.com/gpu", front_end=spool.DEVICE_PLUGIN_FRONT_END),
    ]
    settings = Settings(run_dir=tmp_path)
    spool.write(settings.offers_file, spool_pb2.Offers(offers=offers))
    children = [spool_pb2.Child(name=name) for name in ("scanner", "resource:amd.com_gpu")]
    spool.write(settings.children_file, spool_pb2.Children(children=children))
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["explain", ""], ["amd.com/gpu", "nvidia.com/gpu", "0000:03:00.0", "0000:83:00.0", "slot-4", "SN-1652"]),
        (["explain", "SN"], ["SN-1652"]),
        (["cordon", ""], ["amd.com/gpu", "nvidia.com/gpu", "0000:03:00.0", "0000:83:00.0", "slot-4", "SN-1652"]),
        (["cordon", "amd.com/gpu", "0000:8"], ["83:00.0"]),
        (["explain", "nvidia.com/gpu", ""], []),
        (["ctl", "re"], ["restart", "reload"]),
        (["ctl", "restart", "am"], ["amd.com/gpu"]),
        (["ctl", "tail", "s"], ["scanner"]),
        (["ctl", "stop", "resource:a"], ["amd.com_gpu"]),
    ],
)
def test_bash_completes_actions_programs_resources_and_devices_of_the_instance(in_bash, run_dir, typed, wanted):
    """Defect: `ctl` was offered options only. Bash takes what follows a `:` for a word of its own."""
    command, *rest = typed
    words = ["devherd", command, f"--run-dir={run_dir}", *rest]
    *others, last = words
    split = [*others, *(part for part in re.split("(:)", last) if part)] if ":" in last else words
    assert sorted(offered(split, in_bash, " ".join(words))) == sorted(wanted)


def test_presets_of_nodes_and_the_options_of_no_command_are_completed(in_bash):
    """They are known when the script is made."""
    assert "nvidia-8" in offered(["devherd", "sim", "node", "--spec", "nvidia-"], in_bash)
    assert offered(["devherd", "--"], in_bash) == ["--help", "--version"]


def test_in_bash_every_command_and_every_option_is_known(in_bash):
    """Those that `devherd --help` does not list, too."""
    assert {name.split()[0] for name in COMMANDS} == set(offered(["devherd", ""], in_bash))
    for command in references():
        known = {word for option in command.options for word in option.words}
        assert known <= set(offered(["devherd", *command.name.split(), "-"], in_bash)), command.name


@pytest.mark.parametrize(("shell", "options"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_shell_reads_its_script_without_complaint(tmp_path, tool, shell, options):
    """The real one."""
    (tmp_path / "script").write_text(devherd("completion", shell).stdout)
    command = [tool(shell), options, tmp_path / "script"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("devherd sta", {"status"}),
        ("devherd sim k", {"kubelet"}),
        ("devherd scan --output ", {"table", "json", "yaml"}),
        ("devherd events --ki", {"--kind"}),
        ("devherd sim kubelet al", {"allocate"}),
    ],
)
def test_fish_completes_commands_options_and_values(tmp_path, tool, typed, wanted):
    """By the real fish."""
    (tmp_path / "script").write_text(devherd("completion", "fish").stdout)
    functions = Path(tool("fish")).resolve().parents[1] / "share/fish/functions"  # it may have been unpacked elsewhere
    code = f"set -p fish_function_path {functions}; source {tmp_path}/script; complete -C '{typed}'"
    command = [tool("fish"), "--no-config", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env={"HOME": str(tmp_path)})

    assert (done.returncode, done.stderr) == (0, "")
    assert {line.partition("\t")[0] for line in done.stdout.splitlines()} == wanted


def test_zsh_completes_by_the_function_of_bash(tmp_path, tool):
    """In zsh's emulation, as its bashcompinit calls it."""
    script = devherd("completion", "zsh").stdout.replace("autoload -U +X bashcompinit && bashcompinit\n", "")
    (tmp_path / "script").write_text(script.replace("complete -o default", ": complete -o default"))
    code = f"""
        compgen() {{ print -l -- $*; }}
        source {tmp_path}/script
        COMP_WORDS=(devherd scan --output j) COMP_CWORD=3
        emulate ksh -c '_devherd devherd j --output'
        print -- $COMPREPLY
    """
    command = [tool("zsh"), "-f", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["-W", "table", "json", "yaml", "--", "j"])


def test_zsh_completes_at_the_first_key_of_a_new_shell(tmp_path, tool):
    """The script, in a directory of `fpath`, is loaded by that key."""
    zsh = Path(tool("zsh")).resolve()
    (tmp_path / "_devherd").write_text(devherd("completion", "zsh").stdout)
    ours = zsh.parents[1]  # as tests/tools.sh unpacks it
    modules = [str(place) for place in ours.glob("usr/lib/*/zsh/*")]
    functions = [str(place) for place in (ours / "usr/share/zsh/functions").rglob("*") if place.is_dir()]
    set_up = [
        f"module_path=({' '.join(modules)} $module_path); fpath=({tmp_path} {' '.join(functions)} $fpath)",
        f"PS1='> '; autoload -U compinit; compinit -u -d {tmp_path}/dump; print READY-TO-TYPE | tr A-Z a-z",
    ]
    process, terminal = pty.fork()
    if process == 0:
        os.execve(zsh, ["zsh", "-f"], {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(tmp_path)})
    try:
        os.write(terminal, "\n".join([*set_up, ""]).encode())
        _read_until(terminal, "ready-to-type")
        os.write(terminal, b"devherd sta\t")
        _read_until(terminal, "devherd status ")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


def _read_until(terminal, text):
    said = ""
    while text not in said:
        assert select.select([terminal], [], [], 60)[0], said
        said += os.read(terminal, 65536).decode(errors="replace")


def test_fish_gets_a_line_for_each_command_and_option():
    """Its quoting is its own."""
    script = devherd("completion", "fish").stdout

    assert "complete -c devherd -n '__fish_use_subcommand' -f -a scan -d '" in script
    assert "complete -c devherd -n '__fish_seen_subcommand_from scan' -l output -x -a 'table json yaml' -d '" in script
    assert "-f -a node -d 'write a simulated host tree'" in script
    assert "another device plugin\\'s configuration" in script
    assert all(line.startswith("complete -c devherd -n ") for line in script.splitlines()[1:])


def test_another_shell_is_an_error_with_those_that_there_are():
    """No traceback."""
    assert "`tcsh` is not one of `bash`, `zsh`, `fish`" in devherd("completion", "tcsh").error_line


def test_the_reference_names_every_exit_code_of_our_own():
    """What docs/commands.md and the manual page list."""
    assert {int(code) for code in ExitCode} <= EXIT_CODES.keys()


def test_the_manual_page_is_right_for_a_formatter_and_has_every_command(tool):
    """The real groff warns of nothing."""
    done = subprocess.run(
        [tool("groff"), "-man", "-Tutf8", "-P-cbou", "-ww", MANUAL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    text = re.sub(r"[-\u2010]\n\s*", "", done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in COMMANDS if f"devherd {name}" not in text] == []
    assert "…" in text
