"""Files of classes: TOML and YAML, one class or several; what is wrong has file, line and column."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.config.class_file import classes_in
from devherd.config.classes import DIRECTORY, shipped, shipped_names
from devherd.config.errors import ConfigError
from devherd.config.toml_file import parsed

ONE = '[find]\nclass = "widget"\n'
WIDGET = "find: {class: widget}"
SAME = [
    ("define.yaml", f"define: {{widget: {{{WIDGET}}}}}\n"),
    ("widget.toml", ONE),
    ("widget.yaml", "find: {class: widget}\n"),
    ("x.toml", f"[widget.find]\n{ONE.partition(chr(10))[2]}"),
    ("x.yaml", "widget: {find: {class: widget}}\n"),
    ("config.yaml", "log_level: debug\nclasses: {define: {widget: {find: {class: widget}}}}\n"),
    ("standard input", "widget = {find = {class = 'widget'}}\n"),
    ("standard input", "widget: {find: {class: widget}}\n"),
]


@pytest.mark.parametrize(("source", "text"), SAME)
def test_a_class_is_the_same_in_each_form_of_a_file(source, text):
    """As a shipped file, as a mapping by names, and as it stands in the configuration; in TOML and in YAML."""
    assert {name: one.native(name) for name, one in classes_in(source, text).items()} == {
        "widget": classes_in("widget.toml", ONE)["widget"].native("widget")
    }


@pytest.mark.parametrize(
    ("source", "text", "error"),
    [
        ("a.toml", f"{ONE}nam = 'x'\n", "a.toml:3:1 — find.nam: unknown key — did you mean `name`?"),
        (
            "a.toml",
            f"nodes = [\n  '{{node}}',   # the kernel's\n  \"../x\"]\n{ONE}",
            "a.toml:3:3 — nodes[1].path: `../x` is not below /dev — give its path without `/dev/`, like `vfio/{group}`",
        ),
        (
            "a.toml",
            f"{ONE}attr = {{ x = 1 }}\n",
            "a.toml:3:14 — find.attr.x: `1` is not a text — put it in quotes",
        ),
        (
            "a.toml",
            f"{ONE}vendor = 0x8086\n",
            "a.toml:3:10 — find.vendor[0]: `32902` is not a text — put it in quotes",
        ),
        (
            "a.toml",
            f'{ONE}[[health]]\nread = """x"""\nabsent = true\nreason = "a"\n[[health]]\nread = "b"\nreason = "c"\n',
            "a.toml:7:3 — health[1]: when it is bad is not said — add one of `equals`, `absent`, `beyond`",
        ),
        (
            "a.toml",
            f'{ONE}[facts]\n"b" . type = "number"\nb.is = "few"\n',
            "a.toml:5:8 — facts.b.is: `few` is not a whole number — its `type` is `number`: change one",
        ),
        ("a.toml", "[w.find]\nname = 'x'\n", "a.toml:1:4 — w.find: where to look is not said"),
        ("a.toml", "[find\n", "a.toml:1:6 — not valid TOML: Expected ']' at the end of a table declaration"),
        ("a.toml", "x = [1,\n", "a.toml:2:1 — not valid TOML: Invalid value — correct it there"),
        ("a.yaml", "w:\n  find: {class: x}\n  dra: {}\n", "a.yaml:3:3 — w.dra: classes are not served by DRA yet"),
        ("a.yaml", "classes: {define: {W: {find: {class: x}}}}", "a.yaml:1:23 — classes.define.W: `W` is not the name"),
        ("a.yaml", "", "a.yaml:1:1 — there is no class — write it like `find: {class: accel}`"),
        ("a.yaml", "classes: {enable: all}", "a.yaml:1:10 — classes.define: there is no class"),
        (
            "a.yaml",
            f"resource: a.b/c\n{WIDGET}",
            "a.yaml:1:1 — resource: unknown key — did you mean `plugin.resource`?",
        ),
        ("a.yaml", f"defin: {{w: {{{WIDGET}}}}}", "a.yaml:1:1 — defin: unknown key — did you mean `define`?"),
        (
            "a.yaml",
            f"classes: {{defin: {{w: {{{WIDGET}}}}}}}",
            "a.yaml:1:11 — classes.defin: unknown key — did you mean `define`?",
        ),
        ("a.yaml", "title: x\n", "a.yaml:1:1 — `find` is missing — add `find`"),
    ],
)
def test_what_is_wrong_in_a_file_has_its_place_and_a_cure(source, text, error):
    """Nobody has to count the lines of a file."""
    with pytest.raises(ConfigError) as caught:
        classes_in(source, text)

    assert any(str(one).startswith(f"bad class in {error}") for one in caught.value.errors), caught.value.errors


def places(value, above=()):
    """The places of all keys and items of a content."""
    if above:
        yield above
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in parts:
        yield from places(inner, (*above, part))


@pytest.mark.parametrize("name", shipped_names())
def test_each_key_of_a_shipped_file_has_a_place(name):
    """All of them are TOML, with tables, lists of tables, inline tables and comments."""
    text = (DIRECTORY / f"{name}.toml").read_text("utf-8")
    content, positions = parsed(name, text, subject="class")

    for place in places(content):
        line, column = map(int, positions.of(place, at_key=True).split(":"))
        assert positions.has(place), place
        if isinstance(place[-1], str):
            assert text.splitlines()[line - 1][column - 1 :].lstrip('"').startswith(place[-1]), place
    assert classes_in(f"{name}.toml", text) == {name: shipped(name)}


_KEYS = st.text("abc-_ .é\"'\\#=[]{}", max_size=4)
_TEXTS = st.text("ab #]}\",'\\\n=[{é", max_size=8)
_VALUES = st.recursive(
    st.integers() | st.booleans() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


def quoted(text):
    """A text of TOML."""
    escaped = "".join(f"\\u{ord(each):04x}" if each in '"\\' or not each.isprintable() else each for each in text)
    return f'"{escaped}"'


def written(value):
    """A value on one line."""
    match value:
        case bool():
            return str(value).lower()
        case str() if "'" not in value and value.isprintable():
            return f"'{value}'"
        case str():
            return quoted(value)
        case list():
            return f"[ # ]\n{', '.join(map(written, value))}]"
        case dict():
            return "{ " + ", ".join(f"{quoted(key)} = {written(one)}" for key, one in value.items()) + " }"
    return repr(value)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4), st.dictionaries(_KEYS, st.dictionaries(_KEYS, _VALUES, max_size=2)))
def test_every_key_of_any_toml_has_a_place(plain, tables):
    """Whatever strings and brackets its values hold."""
    tables = {key: table for key, table in tables.items() if key not in plain}
    lines = [f"{quoted(key)} = {written(value)}  # = [\n" for key, value in plain.items()]
    for key, table in tables.items():
        lines += [f"[ {quoted(key)} ]\n", *(f"{quoted(one)} = {written(value)}\n" for one, value in table.items())]
    text = "".join(lines)

    content, positions = parsed("x", text, subject="class")

    assert content == tomllib.loads(text) == plain | tables
    for place in places(content):
        assert positions.has(place), place
