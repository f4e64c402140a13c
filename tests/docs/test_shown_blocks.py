"""What README, docs/ and deploy/ show works when it is typed, and prints what they say."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from shown import ALL, COMMANDS, PAGES, ROOT
from terminal import LOOKS, Terminal, is_as_shown

from devherd.config.checks import warnings_of
from devherd.config.model import Config

NOT_RUN = tomllib.loads(Path(__file__).with_name("not_run.toml").read_text("utf-8"))
RUN = {
    "cat",
    "curl",
    "devherd",
    "echo",
    "export",
    "ls",
    "mkdir",
    "printf",
    "kill",
    "rm",
    "sed",
    "sleep",
    "unset",
    "wait",
}
READ = {"sh", "console", "yaml", "json", "python", "toml", "ini", "promql", "go", "text", "{toctree}", "{image}"}
NOT_OURS = {"affinity", "apiVersion", "image", "jobs", "limits", "pools"}
NOT_OURS |= {"scrape_configs", "tls_config", "tls_server_config"}
"""Keys of others: Kubernetes', kustomize's, the chart's, Prometheus', CI's; and of exporters' web configuration."""

WITH_A_TEST_OF_ITS_OWN = {"docs/test-your-plugin.md": "test_test_your_plugin_page.py"}
"""Pages that show a program, and not only commands."""

TO_TYPE = [command for command in COMMANDS if command.block.page not in WITH_A_TEST_OF_ITS_OWN]
RUNNABLE = [command for command in TO_TYPE if command.programs <= RUN]
BY_PAGE = {page: list(shown) for page, shown in itertools.groupby(RUNNABLE, lambda command: command.block.page)}
YAML = [block for block in ALL if block.language == "yaml"]
CONFIGURATIONS = [block for block in YAML if yaml.safe_load(block.text).keys().isdisjoint(NOT_OURS)]


def test_the_pages_are_found():
    """And commands on them."""
    assert ROOT / "README.md" in PAGES
    assert ROOT / "docs" / "switch.md" in PAGES
    assert len(RUNNABLE) > 10
    assert [test for test in WITH_A_TEST_OF_ITS_OWN.values() if not Path(__file__).with_name(test).is_file()] == []


def test_every_block_says_what_it_is():
    """So that none escapes the tests below: what a shell reads is `sh`, or `console` where the answer is shown, too."""
    assert [block.name for block in ALL if block.language not in READ] == []
    texts = [block for block in ALL if block.language == "text"]
    assert [block.name for block in texts if re.search(r"^(devherd |\$ )", block.text, re.MULTILINE)] == []


def test_every_command_is_run_or_has_its_reason():
    """By its programs, in `not_run.toml`; what an `sh` block prints is not shown."""
    unknown = {(each.block.name, program) for each in TO_TYPE for program in each.programs - RUN - NOT_RUN.keys()}
    assert unknown == set()
    assert [each.block.name for each in TO_TYPE if each.block.language == "sh" and each.printed] == []


def test_no_reason_is_given_for_what_no_page_shows():
    """A program that has gone from the pages goes from the list."""
    shown = set().union(*(command.programs for command in TO_TYPE))
    assert NOT_RUN.keys() - shown == set()


@pytest.mark.timeout(600)  # some pages have thirty commands, of half a second each on a machine that is free
@pytest.mark.parametrize("page", BY_PAGE)
def test_the_commands_of_a_page_work_one_after_the_other(page):
    """In one terminal. Where the page does not start an instance itself, one runs, on a node with 8 NVIDIA GPUs."""
    with Terminal() as terminal:
        if not any("devherd run" in command.text for command in BY_PAGE[page]):
            _start_an_instance(terminal)
        for command in BY_PAGE[page]:
            terminal.follow(command)


def test_every_configuration_is_good_and_nothing_in_it_is_without_effect():
    """Each of its rules can match something."""
    found = {
        block.name: list(warnings_of(Config.model_validate(yaml.safe_load(block.text)))) for block in CONFIGURATIONS
    }
    assert {name: warnings for name, warnings in found.items() if warnings} == {}


def test_what_is_shown_is_compared_with_what_is_printed():
    """Times aside."""
    assert is_as_shown("GPU-1 Healthy\n...\n8 devices, 3.2 ms", "GPU-1   Healthy  \nGPU-2 Healthy\n8 devices, 11 ms")
    assert not is_as_shown("GPU-1 Healthy", "GPU-1 Unhealthy")


def _without_repeated_looks(commands):
    seen = set()
    for command in commands:
        looks_again = command.text in seen and LOOKS.search(command.text) and not command.printed
        seen.add(command.text)
        if not looks_again:
            yield command


def _start_an_instance(terminal):
    for text in (
        "devherd sim node /tmp/host --spec nvidia-8 > /dev/null && export DEVHERD_HOST_ROOT=/tmp/host",
        "export DEVHERD_LISTEN=127.0.0.1:9478,unix:/run/devherd-http/http.sock",
        "printf 'migStrategy: mixed\\n' > values.yaml",
        "printf 'health: {poll: 1s}\\n' | tee config.yaml > /etc/devherd/config.yaml",
        "devherd sim kubelet > /tmp/kubelet.log 2>&1 &",
        "devherd run 2> /tmp/devherd.log &",
    ):
        code, output = terminal.type(text)
        assert code == 0, output
    terminal.until_registered()
