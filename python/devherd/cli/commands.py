"""The commands: name, summary in one line, example, and module.

A module of one command has `add_arguments(parser)` and `run(arguments) -> exit code`; its docstring is the command's
description. A module of several has `add_NAME_arguments` and `run_NAME` for each; the docstring of `run_NAME` is the
description.
"""

import argparse
import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from devherd.cli.options import COMMON_OPTIONS
from devherd.cli.parser import OWN_KUBELET_DIR, Parser, add_common_options
from devherd.errors import UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """A command in the list of commands."""

    module: str
    """The module's name, followed by `:NAME` if the module has several commands."""
    summary: str
    example: str
    options: tuple[str, ...] = COMMON_OPTIONS
    """The common options that have an effect; its help shows only these."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Help texts that replace the usual ones, by option."""


OF_A_HOST = ("--config", "--host-root")
OF_A_SCAN = ("--config", "--host-root", "--run-dir")
OF_A_SWITCH = ("--config", "--host-root", "--run-dir", "--kubelet-dir", "--kubelet-root-dir")
OF_A_RUN_DIRECTORY = ("--config", "--run-dir")
OF_CORDONS = ("--config", "--run-dir", "--state-dir")
OF_AN_INSTANCE = ("--config", "--run-dir", "--kubelet-dir", "--kubelet-root-dir")
OF_A_KUBELET = ("--kubelet-dir", "--kubelet-root-dir")
OF_THE_DOCTOR = (
    "--config",
    "--host-root",
    "--kubelet-dir",
    "--kubelet-root-dir",
    "--registration",
    "--run-dir",
    "--listen",
)

COMMANDS = {
    "run": Command(
        "devherd.cli.run",
        "run the supervisor in the foreground",
        "devherd run --config /etc/devherd/config.yaml --listen 0.0.0.0:9478",
    ),
    "scan": Command(
        "devherd.cli.scan",
        "scan the host once and print its devices",
        "devherd scan --output json --fail-on-problem",
        OF_A_SCAN,
    ),
    "compare": Command(
        "devherd.cli.compare",
        "compare what pods get from present plugins and devherd",
        "devherd compare --config config.yaml",
        OF_A_SWITCH,
    ),
    "status": Command("devherd.cli.status", "show the running instance", "devherd status --watch", OF_AN_INSTANCE),
    "explain": Command(
        "devherd.cli.explain",
        "say all that is known of a device, a resource or a pod",
        "devherd explain 0000:3b:00.0",
        OF_AN_INSTANCE,
    ),
    "events": Command(
        "devherd.cli.events",
        "show past events: verdicts, registrations, allocations",
        "devherd events --follow --kind verdict --resource nvidia.com/gpu",
        OF_A_RUN_DIRECTORY,
    ),
    "doctor": Command(
        "devherd.cli.doctor",
        "check all that devherd needs of this host, with cures",
        "devherd doctor --bundle devherd-support.tar.gz",
        OF_THE_DOCTOR,
    ),
    "cordon": Command(
        "devherd.cli.cordon:cordon",
        "keep a device from new pods",
        "devherd cordon 0000:3b:00.0 --reason 'ticket 4711: runs hot'",
        OF_CORDONS,
    ),
    "uncordon": Command(
        "devherd.cli.cordon:uncordon",
        "give a cordoned device back to the kubelet",
        "devherd uncordon 0000:3b:00.0",
        OF_CORDONS,
    ),
    "forget": Command(
        "devherd.cli.cordon:forget",
        "forget a lost device",
        "devherd forget 0000:3b:00.0",
        OF_CORDONS,
    ),
    "clear": Command(
        "devherd.cli.cordon:clear",
        "end a finding that does not end by itself",
        "devherd clear 0000:3b:00.0 xid",
        OF_A_RUN_DIRECTORY,
    ),
    "labels": Command(
        "devherd.cli.labels",
        "print this node's labels; --remove takes them from nodes",
        "devherd labels --output json",
        OF_A_HOST,
    ),
    "dra withdraw": Command(
        "devherd.cli.dra:withdraw",
        "remove this node's ResourceSlices from the API server",
        "devherd dra withdraw --kubeconfig /etc/kubernetes/kubelet.conf",
        ("--config", "--run-dir", "--kubeconfig"),
    ),
    "classes": Command(
        "devherd.cli.classes",
        "list the device classes, with the devices of each here",
        "devherd classes",
        OF_A_HOST,
    ),
    "classes check": Command(
        "devherd.cli.classes_check",
        "validate a device class, print the devices it finds here",
        "devherd classes check widget.toml",
        OF_A_HOST,
    ),
    "config check": Command(
        "devherd.cli.config:check",
        "validate a configuration, print the resources it makes",
        "devherd config check /etc/devherd/config.yaml",
        OF_A_HOST,
    ),
    "config show": Command(
        "devherd.cli.config:show",
        "print the configuration in force, each value's origin",
        "devherd config show --config /etc/devherd/config.yaml",
    ),
    "config sample": Command(
        "devherd.cli.config:sample",
        "print a configuration file to start from",
        "devherd config sample > /etc/devherd/config.yaml",
        (),
    ),
    "config schema": Command(
        "devherd.cli.config:schema",
        "print the JSON Schema of the configuration",
        "devherd config schema > devherd.schema.json",
        (),
    ),
    "config import": Command(
        "devherd.cli.import_config",
        "convert another device plugin's configuration",
        "devherd config import nvidia-config.yaml > /etc/devherd/config.yaml",
        (),
    ),
    "nvidia-device-plugin": Command(
        "devherd.cli.nvidia_device_plugin",
        "serve NVIDIA GPUs instead of NVIDIA's device plugin",
        "devherd nvidia-device-plugin --listen :9478",
        COMMON_OPTIONS[1:],
    ),
    "deploy-files": Command(
        "devherd.cli.deploy_files",
        "write manifests, Helm chart, systemd unit, alert rules",
        "devherd deploy-files /usr/local/share/devherd",
        (),
    ),
    "reload": Command(
        "devherd.cli.reload",
        "make the running instance read its configuration again",
        "devherd reload",
        OF_A_RUN_DIRECTORY,
    ),
    "ctl": Command(
        "devherd.cli.ctl",
        "supervisorctl against the running instance",
        "devherd ctl restart scanner",
        OF_A_RUN_DIRECTORY,
    ),
    "sim node": Command(
        "devherd.cli.sim_node:node",
        "write a simulated host tree",
        "devherd sim node /tmp/host --spec fpga-8 && devherd scan --host-root /tmp/host",
        (),
    ),
    "sim fault": Command(
        "devherd.cli.sim_node:fault",
        "inject a fault into a simulated node",
        "devherd sim fault /tmp/host xid 0000:1b:00.0 '48, DBE'",
        (),
    ),
    "sim monitor": Command(
        "devherd.cli.sim_node:monitor",
        "run a server in place of a vendor's GPU monitor",
        "devherd sim monitor /tmp/host amd-exporter",
        (),
    ),
    "sim kubelet": Command(
        "devherd.cli.sim_kubelet",
        "run the embedded kubelet device manager, or use it",
        "devherd sim kubelet --kubelet-dir /tmp/kubelet",
        OF_A_KUBELET,
        OWN_KUBELET_DIR,
    ),
    "completion": Command(
        "devherd.cli.completion",
        "print the completion script for bash, zsh or fish",
        "devherd completion bash > /etc/bash_completion.d/devherd",
        (),
    ),
    "demo": Command("devherd.cli.demo", "show devherd at work on a simulated node", "devherd demo --keep", ()),
}


GROUPS = {
    "config": "check, show, sample, schema, import: the configuration",
    "dra": "withdraw: what is published for Dynamic Resource Allocation",
    "sim": "node, fault, kubelet: a simulated node, and a kubelet's part of it",
}
"""The first words of commands of two words, and what `devherd --help` says of each."""
_OVERVIEW = {
    "see what is here": ("scan", "status", "explain", "events", "doctor"),
    "serve it": ("run", "reload", "config", "compare"),
    "decide about one device": ("cordon", "uncordon", "clear", "forget"),
    "try without hardware": ("demo", "sim"),
}
"""What `devherd --help` lists: one screen of 80 columns and 24 lines. `devherd help --all` lists every command."""


def parsed(words: Sequence[str]) -> Callable[[], int]:
    """The command that the words name; it returns its exit code. Raises UsageError if they name none."""
    if not words:
        raise UsageError(
            "no command given", "devherd alone does nothing", "begin with `devherd scan`, or `devherd --help`"
        )
    if words[0] in {"-h", "--help", "help"} and "--all" in words[1:]:
        return partial(_print, _whole_overview())
    if words[0] == "help" and len(words) > 1:
        words = [*words[1:], "--help"]
    if words[0] in {"-h", "--help", "help"}:
        return partial(_print, _overview())
    if words[0] in {"-V", "--version", "version"}:
        from devherd.text import version_line

        return partial(_print, f"{version_line()}\n")
    name, rest = _command_in(words)
    if name in GROUPS:
        return partial(_print, _overview_of_group(name))
    return partial(_implementation(name).run, parser_of(name).parse(rest))


def _print(text: str) -> int:
    print(text, end="")
    return 0


def parser_of(name: str) -> Parser:
    """The parser of a command's options."""
    command, implementation = COMMANDS[name], _implementation(name)
    epilog = f"example:\n  {command.example}\n"
    parser = Parser(prog=f"devherd {name}", description=implementation.description, epilog=epilog)
    add_common_options(parser, command.options, command.texts)
    implementation.add_arguments(parser)
    return parser


@dataclass(frozen=True, slots=True)
class _Implementation:
    """The parts of a command's module: its options, its function, its description."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    description: str | None


def _implementation(name: str) -> _Implementation:
    path, _, one = COMMANDS[name].module.partition(":")
    module = importlib.import_module(path)
    if not one:
        return _Implementation(module.add_arguments, module.run, module.__doc__)
    run_one = getattr(module, f"run_{one}")
    return _Implementation(getattr(module, f"add_{one}_arguments"), run_one, inspect.getdoc(run_one))


def _command_in(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command's name and the words after it; only the group's name if its help is requested.

    Raises UsageError for an unknown command or option.
    """
    first = words[0]
    if first.startswith("-"):
        close = difflib.get_close_matches(first, ("--version", "--help"), n=1)
        if close:
            raise UsageError(f"unknown option `{first}`", "it is not one", f"did you mean `{close[0]}`?")
        option = first.partition("=")[0]
        if option in COMMON_OPTIONS:
            cure = f"write it as `devherd COMMAND {option} …`"
            raise UsageError(f"`{option}` is before the command", "options belong after it", cure)
        raise UsageError(f"unknown option `{option}`", "`devherd` has no such option", "see `devherd --help`")
    if " ".join(words[:2]) in COMMANDS:
        return " ".join(words[:2]), words[2:]
    if first in COMMANDS:
        return first, words[1:]
    if first in GROUPS:
        if words[1:2] in ([], ["-h"], ["--help"]):
            return first, ()
        first = " ".join(words[:2])
    close = difflib.get_close_matches(first, [*COMMANDS, *GROUPS], n=1)
    why = f"did you mean `devherd {close[0]}`?" if close else "`devherd` has no such command"
    raise UsageError(f"unknown command `{first}`", why, "`devherd help --all` lists every command")


_USAGE = "usage: devherd COMMAND [OPTIONS]"


def _overview() -> str:
    summaries = {name: command.summary for name, command in COMMANDS.items()} | GROUPS
    lines = [_USAGE, ""]
    for heading, names in _OVERVIEW.items():
        lines += [f"{heading}:", *(f"  {name:<9} {summaries[name]}" for name in names)]
    lines += ["", "the options of one: devherd help COMMAND; every command: devherd help --all", ""]
    return "\n".join(lines)


def _whole_overview() -> str:
    """Every command, those that few people need, too."""
    return (
        f"{_USAGE}\n       devherd help COMMAND\n       devherd --version\n\n"
        f"One supervisor for every FPGA, GPU and other device on a Kubernetes node.\n\n{_lines(COMMANDS)}"
    )


def _overview_of_group(group: str) -> str:
    names = [name for name in COMMANDS if name.startswith(f"{group} ")]
    usage = f"usage: devherd {group} COMMAND [--help] [OPTIONS]"
    return f"{usage}\n\ncommands:\n{_lines(names)}\nexample:\n  {COMMANDS[names[0]].example}\n"


def _lines(names: Iterable[str]) -> str:
    return "".join(f"  {name:<21} {COMMANDS[name].summary}\n" for name in names)
