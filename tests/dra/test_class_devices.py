"""Devices of `classes`: what a class declares of them is published under its own names and kinds."""

import pytest
from publishing import devices_of, published
from pydantic import ValidationError

from devherd.config.device_class import ClassDefinition
from devherd.dra.own import OF_EVERY_CLASS
from devherd_sim.node.tree import write_tree

WIDGET = {
    "find": {"class": "widget", "name": "widget{n}"},
    "facts": {
        "model": {"read": "model"},
        "size": {"read": "size", "type": "number"},
        "ready": {"read": "ready", "map": {"1": "true", "0": "false"}, "type": "boolean", "optional": True},
        "firmware_release": {"read": "firmware", "type": "version", "optional": True},
        "cover": {"read": "cover", "optional": True},
    },
}
FILES = {"model": "W1", "size": "8", "ready": "1", "firmware": "1.2", "cover": "red"}


def widgets(root, *devices):
    """The pools of a host with these entries of the class: by number, files and their text; and the notices."""
    lines = []
    for number, files in enumerate(devices):
        place = f"sys/devices/virtual/widget/widget{number}"
        lines.append(f"sys/class/widget/widget{number} -> ../../devices/virtual/widget/widget{number}")
        lines += [f"{place}/dev = 240:{number}", f"dev/widget{number} char 240:{number}"]
        lines += [f"{place}/uevent =", "    MAJOR=240", f"    MINOR={number}", f"    DEVNAME=widget{number}"]
        lines += [f"{place}/{name} = {text}" for name, text in files.items()]
    write_tree("\n".join(lines), root)
    pools, classes, notices = published(root, {"classes": {"define": {"widget": WIDGET}}})
    return devices_of(pools, "classes.devherd.io"), classes, notices


def test_a_device_of_a_class_has_the_facts_of_the_class_with_their_kinds_and_the_class_as_type(tmp_path):
    """Numbers are numbers, so that CEL compares them; a rule of no one is needed."""
    devices, classes, notices = widgets(tmp_path, FILES)
    ((attributes, capacities),) = devices.values()
    assert attributes == {
        "type": {"string": "widget"},
        "resourceName": {"string": "devherd.io/widget"},
        "name": {"string": "widget0"},
        "n": {"int": 0},
        "model": {"string": "W1"},
        "size": {"int": 8},
        "ready": {"bool": True},
        "firmware_release": {"version": "1.2.0"},
        "cover": {"string": "red"},
    }
    assert (capacities, notices) == ({}, [])
    assert [each.extended_resource_name for each in classes] == ["devherd.io/widget"]


def test_no_fact_of_a_class_has_a_name_that_dra_gives_to_something_else():
    """Defect: a fact called `type` had no attribute, without a word."""
    for name in OF_EVERY_CLASS:
        with pytest.raises(ValidationError, match="rename it"):
            ClassDefinition.model_validate({"find": {"class": "x"}, "facts": {name: {"read": "x"}}})


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("fact", ["ready", "firmware", "cover"])
def test_an_optional_fact_that_one_device_of_a_class_lacks_is_left_out_for_all_with_a_notice(fact, is_first, tmp_path):
    """Whichever comes first; what is not known is not false either."""
    lacking = {name: text for name, text in FILES.items() if name != fact}
    devices, _, notices = widgets(tmp_path, *((lacking, FILES) if is_first else (FILES, lacking)))
    name = {"firmware": "firmware_release"}.get(fact, fact)
    assert len(devices) == 2
    assert [name in attributes for attributes, _ in devices.values()] == [False, False]
    (notice,) = notices
    assert notice.startswith(f"classes.devherd.io widget: `{name}` is left out for every device of the type: ")
