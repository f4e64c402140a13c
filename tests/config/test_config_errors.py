"""What a configuration is refused for: file, line and column, key path, what is wrong with the value, what to do."""

import json
import os
from pathlib import Path

import pytest

from devherd.config.describe import is_map_of_sections, section_of
from devherd.config.errors import ConfigError
from devherd.config.loader import load, valid
from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.importers.source import plugin_of


def errors_of(text, given=None):
    """What is said about a text, without what every line begins with."""
    with pytest.raises(ConfigError) as caught:
        valid("c.yaml", text, given or {}, plugin_of)
    return [str(error).removeprefix("bad configuration in ") for error in caught.value.errors]


WRONG = [
    tuple(block.rstrip().split("\n=> "))
    for block in (Path(__file__).parent / "wrong_configurations.txt").read_text("utf-8").split("\n\n")
]
"""Texts, each with what is said about it."""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *WRONG,
        ("[" * 100_000, "c.yaml:1:51 — nested deeper than 50 levels — no key is as deep as that"),
        (
            f"health: {{recover_after: {'1' * 5000}}}",
            "c.yaml:1:25 — the value is not a number — correct it, or put it in quotes",
        ),
        ("log_level: a\x01b", "c.yaml:1:13 — control characters are not allowed here — remove it"),
    ],
)
def test_each_wrong_configuration_gives_one_line_with_place_key_value_and_cure(text, error):
    """A user reads where it is, which key is wrong and what to write instead: no traceback, no library's words."""
    assert errors_of(text) == [error]


def test_all_errors_of_a_file_are_found_at_once():
    """Nobody should have to fix one error to see the next."""
    found = errors_of("scan: {period: x}\nhealth: {pol: 1s}\nresources: [{name: bad, match: {idd: x}}]\n")

    assert [line.split(": ")[0] for line in found] == [
        "c.yaml:1:16 — scan.period",
        "c.yaml:2:10 — health.pol",
        "c.yaml:3:20 — resources[0].name",
        "c.yaml:3:33 — resources[0].match.idd",
    ]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("health: {kernel_log: {rules: [{name: a, contains: ab, pattern: '('}]}}", ["contains", "pattern"]),
        ("health: {kernel_log: {optional: [x, y]}}", ["optional[0]", "optional[1]"]),
        ("health: {xid: {x: warn, y: warn}}", ["x", "y"]),
    ],
)
def test_all_errors_of_one_place_are_found_at_once(text, places):
    """Defect: of a short `contains` and a broken `pattern` only the first was told."""
    assert [line.split(" — ")[1].split(": ")[0].rpartition(".")[2] for line in errors_of(text)] == places


def test_a_number_with_a_point_is_a_glob_as_it_is_written():
    """A version: `1.10` is not `1.1`."""
    match = valid("c.yaml", "resources: [{match: {driver_version: 1.10}}]").resources[0].match
    assert match.facts == {"driver_version": ["1.10"]}


def test_invisible_characters_are_left_in_quotes_and_comments():
    """There somebody may have wanted them."""
    valid("c.yaml", "resources: [{match: {model: 'a\u00a0b'}}] # no\u00a0break\n")


def test_the_first_of_several_errors_is_told_with_how_many_there_are():
    """`devherd run` says one line."""
    with pytest.raises(ConfigError, match=r"did you mean `scan`\? \(2 more: see `devherd config check`\)$"):
        valid("c.yaml", "scna: {}\nsimulatde: []\nhealht: {}\n")


def test_a_wrong_option_is_blamed_on_the_option_not_on_the_file():
    """The line names what the user typed."""
    given = {"listen": ("x", "--listen"), "run_dir": ("~/run", "DEVHERD_RUN_DIR")}

    assert errors_of("", given) == [
        "bad value of DEVHERD_RUN_DIR — `~/run` is not an absolute path — start it with `/`",
        (
            "bad value of --listen — `x` is not an ADDRESS:PORT — write it like `127.0.0.1:9478`, or leave it empty for"
            " no exporter"
        ),
    ]


@pytest.mark.parametrize("name", ["host_root", "kubelet_dir", "run_dir", "state_dir"])
def test_an_option_or_a_variable_may_be_a_path_relative_to_where_it_is_typed(tmp_path, monkeypatch, name):
    """Who types it knows where that is; a file does not."""
    monkeypatch.chdir(tmp_path)

    assert getattr(load({name: "there"}, {}), name) == tmp_path / "there"
    assert getattr(load({}, {f"DEVHERD_{name.upper()}": "there"}), name) == tmp_path / "there"


def test_a_key_in_an_anchor_or_a_merge_is_shown_where_it_is_written():
    """A value that an alias brings is wrong where the alias points to."""
    merged = "simulated:\n- &x {name: a.b/c, count: -1}\n- {<<: *x, name: a.b/d}\n"

    assert [line.split(" — ")[0] for line in errors_of(merged)] == ["c.yaml:2:27"] * 2


def test_a_long_value_is_shortened():
    """A line is read by people."""
    [line] = errors_of(f"log_level: {'x' * 1000}")

    assert len(line) < 200


def _wrong_values(model, above=()):
    """For each key of each section, by its path: the value that makes a document of one at this key."""
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        yield path
        if section := section_of(field):
            of_many = (0,) if "list[" in str(field.annotation) else ("x",) if is_map_of_sections(field) else ()
            yield from _wrong_values(section, (*path, *of_many))


def _document(path, value):
    for part in reversed(path):
        value = [value] if part == 0 else {part: value}
    return value


@pytest.mark.parametrize("path", [*_wrong_values(Config)], ids=lambda path: ".".join(map(str, path)))
def test_no_wrong_value_of_any_key_is_refused_in_the_words_of_a_library(path):
    """Numbers, texts, lists and mappings where they do not belong, in each key of each section."""
    for value in (5, -1, 1.5, 1e300, True, "", "x", "\0", {}, {"a": 1}, [], [[]], [5], [{}], [{"a": []}], [None]):
        try:
            valid("c.yaml", json.dumps(_document(path, value)))
        except ConfigError as error:
            for each in error.errors:
                assert "is refused: " not in each.why
                assert each.cure != "correct it"
                assert not {"Input", "Value", "should"} & set(each.why.replace(":", " ").split()), each


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path, content):
    """Missing, or not text."""
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(UsageError):
        load({"config": str(path)}, {})


def test_a_fifo_in_place_of_the_file_does_not_hang(tmp_path):
    """A running instance reads the file again at SIGHUP, whatever it has become."""
    path = tmp_path / "config.yaml"
    os.mkfifo(path)

    with pytest.raises(UsageError, match="not a regular file"):
        load({"config": str(path)}, {})


def test_aliases_that_explode_are_refused_and_those_that_repeat_a_little_are_not():
    """Defect: 18 kB of them took minutes and 878 MB before anything was said."""
    lists = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    assert errors_of(f"a0: &a0 [x]\n{lists}\n") == [
        "c.yaml:1:1 — aliases (`*name`) repeat too much — write at most 100000 values by them"
    ]
    rules = "\n".join(f"- {{match: *gpus, name: example.com/gpu-{n}}}" for n in range(300))
    valid("c.yaml", f"resources:\n- match: &gpus {{vendor: nvidia}}\n{rules}\n")


def test_a_duration_may_be_given_in_days():
    """A week of them is said as people say it."""
    assert valid("c.yaml", "health: {forget_after: 7d}\n").health.forget_after == 7 * 86_400
