"""`classes` of the configuration: which are in force, in which order, and what the scan core gets of each."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from devherd._native import Finding, Scanner
from devherd.config.classes import DIRECTORY, shipped, shipped_names
from devherd.config.device_class import ClassDefinition
from devherd.config.loader import resolve, valid
from devherd.config.model import Config
from devherd.reasons.registry import meaning_of, to_do

WIDGET = """
classes:
  define:
    widget:
      find: {bus: widget, name: "widget{n}", driver: acme, vendor: 0x1A2b, device: ["0001", 7523], attr: {state: 1},
             above: {name: "board{b}", attr: {type: full}}}
      function: "{bus}"
      facts:
        product: {read: "boards/{bus}/info", key: Product, optional: true}
        bus: {above: bus_id}
        size: {read: size, map: {"1": "8", "2": "16"}, else: "0", type: number}
        group: {link: iommu_group, type: number}
      nodes: ["{node}", {path: "vfio/{group}"}, {path: /dev/vfio/vfio, common: true},
              {path: "char/{number}", optional: true}]
      permissions: rwm
      health: [{read: "/sys/kernel/debug/{name}/status", equals: -1, reason: widget-broken}]
      plugin: {resource: "acme.example/{size}", id: "{bus}-{share}", shares: 4, env: {WIDGET: "{n}"}}
"""


def native(text: str) -> list[dict]:
    """The classes as the scan core gets them."""
    return json.loads(resolve(valid("c.yaml", text)).native)["vendors"]["classes"]


def test_the_scan_core_gets_each_key_with_its_default():
    """Names, defaults and order are the contract with rust/src/vendors/classes/definition.rs."""
    blank = {
        "read": None,
        "above": None,
        "link": None,
        "entry": None,
        "is": None,
        "key": None,
        "map": {},
        "otherwise": None,
        "type": "text",
        "optional": False,
    }
    node = {"optional": False, "common": False}
    assert native(WIDGET) == [
        {
            "name": "widget",
            "find": {
                "class": None,
                "bus": "widget",
                "name": "widget{n}",
                "driver": ["acme"],
                "vendor": ["0x1a2b"],
                "device": ["0x0001", "0x7523"],
                "attr": {"state": "1"},
                "above": {"name": "board{b}", "attr": {"type": "full"}},
            },
            "function": "{bus}",
            "facts": [
                blank | {"name": "bus", "above": "bus_id"},
                blank | {"name": "product", "read": "boards/{bus}/info", "key": "Product", "optional": True},
                blank
                | {"name": "size", "read": "size", "map": {"1": "8", "2": "16"}, "otherwise": "0", "type": "number"},
                blank | {"name": "group", "link": "iommu_group", "type": "number"},
            ],
            "nodes": [
                node | {"path": "{node}"},
                node | {"path": "vfio/{group}"},
                node | {"path": "vfio/vfio", "common": True},
                node | {"path": "char/{number}", "optional": True},
            ],
            "permissions": "rwm",
            "group": None,
            "health": [
                {
                    "read": "/sys/kernel/debug/{name}/status",
                    "equals": "-1",
                    "absent": False,
                    "beyond": None,
                    "reason": "widget-broken",
                }
            ],
            "resource": "acme.example/{size}",
            "id": "{bus}-{share}",
            "shares": 4,
            "env": {"WIDGET": "{n}"},
            "vm": False,
        }
    ]


def test_a_fact_stands_behind_those_that_it_needs_however_a_chart_sorts_the_keys():
    """Helm writes keys in alphabetical order."""
    facts = "{a: {read: '{b}/{c}'}, b: {read: '{c}'}, c: {read: x}}"
    [one] = native(f"classes: {{define: {{w: {{find: {{class: w}}, facts: {facts}}}}}}}")

    assert [fact["name"] for fact in one["facts"]] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        ("{}", ("devherd.io/w", "{name}", 1)),
        ("{shares: 3}", ("devherd.io/w", "{name}-{share}", 3)),
        ("{resource: a.b/c}", ("a.b/c", "{name}", 1)),
    ],
)
def test_a_class_of_one_line_is_served_under_its_own_name(plugin, expected):
    """Its node is the one that the kernel names."""
    [one] = native(f"classes: {{define: {{w: {{find: {{class: w}}, plugin: {plugin}}}}}}}")

    assert (one["resource"], one["id"], one["shares"]) == expected
    assert one["nodes"] == [{"path": "{node}", "optional": False, "common": False}]


def test_a_class_for_virtual_machines_gets_the_nodes_of_vfio():
    """The scan core knows them."""
    [one] = native("classes: {define: {w: {find: {bus: pci, vendor: '0x8086'}, vm: true}}}")

    assert (one["vm"], one["nodes"]) == (True, [])


def test_no_class_is_served_unless_the_configuration_says_so():
    """An upgrade that ships another class changes nothing on any node."""
    assert native("") == native("classes: {}") == native("classes: {enable: [], define: {}}") == []


def test_ones_own_classes_come_first_then_the_enabled_ones_as_they_are_listed():
    """The first that fits an entry has it."""
    text = "classes: {enable: [tun, kvm, tun, w], define: {w: {find: {class: w}}}}"

    assert [one["name"] for one in native(text)] == ["w", "tun", "kvm"]


def test_all_are_those_that_were_compared_with_their_plugin_and_others_can_stand_beside():
    """What only follows from documents is switched on by its name."""
    confirmed = [name for name in shipped_names() if shipped(name).confirmed == "plugin"]

    assert [one["name"] for one in native("classes: {enable: all}")] == confirmed
    assert [one["name"] for one in native("classes: {enable: [all, tenstorrent]}")] == [*confirmed, "tenstorrent"]


def test_ones_own_class_takes_the_place_of_a_shipped_one_with_its_name():
    """A later version may ship a class under a name that somebody has taken: the configuration stays valid."""
    [one] = native("classes: {enable: [kvm], define: {kvm: {find: {class: misc, name: kvm}}}}")

    assert one["resource"] == "devherd.io/kvm"


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_file_is_valid_as_a_class_of_the_configuration(name):
    """One schema for both; whoever copies a file into the configuration gets the same class."""
    content = tomllib.loads((DIRECTORY / f"{name}.toml").read_text("utf-8"))
    own = valid("c.yaml", json.dumps({"classes": {"define": {"own": content}}})).classes.define["own"]

    assert own == shipped(name) == ClassDefinition.model_validate(content)
    assert own.title
    assert own.source
    assert own.confirmed


def test_rules_can_name_the_facts_of_the_classes_in_force_and_no_others():
    """`class`, the parts of names, and what the class reads."""
    rule = "resources: [{match: {vendor: classes, class: intel-dsa, mode: shared, queue: '0'}, name: a.b/c}]"

    valid("c.yaml", f"classes: {{enable: intel-dsa}}\n{rule}")
    with pytest.raises(Exception, match=r"match.mode: devices of classes do not have this fact"):
        valid("c.yaml", f"classes: {{enable: kvm}}\n{rule}")


def test_a_reason_of_a_class_makes_a_device_unhealthy_while_it_is_seen():
    """Whatever the class calls it; a person is told which file says so."""
    finding = Finding(source="class", reason="widget-broken", file="/sys/class/widget/widget0/state", value="broken")
    meaning = meaning_of(finding)

    assert (meaning.action, meaning.clears) == ("unhealthy", "level")
    assert finding.file in to_do(finding, meaning, "widget0", {})


def test_a_reason_of_a_class_can_be_named_by_a_rule():
    """Like any other."""
    valid("c.yaml", f"{WIDGET}health: {{rules: [{{source: class, reason: widget-broken, action: warn}}]}}")


TEXTS = st.lists(
    st.sampled_from(["a", "b", "dev", "sys", "proc/driver", "0", "/", "//", ".", "..", "!", "*", "{a}", "{b}", "{c}"])
    | st.sampled_from(["{name}", "{node}", "{share}", "{slot}", "{iommu_group}", "{", "}", "0x1", "x.y/", " "]),
    max_size=4,
).map("".join)
"""Paths, patterns and templates, most of them wrong."""
FACTS = st.fixed_dictionaries(
    {}, optional={"read": TEXTS, "link": TEXTS, "above": TEXTS, "entry": TEXTS, "optional": st.booleans()}
)
FILES = st.dictionaries(TEXTS, st.just("x"), max_size=1)
FINDS = st.fixed_dictionaries(
    {"class": TEXTS},
    optional={
        "name": TEXTS,
        "driver": st.lists(TEXTS, max_size=2),
        "vendor": TEXTS,
        "attr": FILES,
        "above": st.fixed_dictionaries({"attr": FILES}, optional={"name": TEXTS}),
    },
)
HEALTH = st.fixed_dictionaries({"read": TEXTS, "beyond": st.integers(), "reason": st.just("x")})
PLUGINS = st.fixed_dictionaries(
    {}, optional={"resource": TEXTS, "id": TEXTS, "shares": st.integers(0, 10_001), "env": st.just({"A": "{b}"})}
)
PARTS = {
    "find": FINDS,
    "function": TEXTS,
    "facts": st.dictionaries(st.sampled_from("abc"), FACTS, max_size=3),
    "nodes": st.lists(TEXTS, max_size=2),
    "permissions": st.text("rwmx", max_size=4),
    "group": st.sampled_from("abc"),
    "health": st.lists(HEALTH, max_size=1),
    "plugin": PLUGINS,
    "vm": st.booleans(),
}


@given(data=st.data(), key=st.sampled_from([*PARTS]), other=st.sampled_from([*PARTS]))
def test_what_the_schema_takes_the_scan_core_takes(data, key, other):
    """Defect: the core refused `a//b` and others, so one class took the whole configuration down, without its place."""
    base = {"find": {"class": "x"}, "facts": {"a": {"read": "y"}}}
    content = base | {each: data.draw(PARTS[each], each) for each in {key, other}}
    try:
        config = Config.model_validate({"classes": {"define": {"w": content}}})
    except ValidationError:
        return
    Scanner("/nonexistent", resolve(config).native_json(None))
