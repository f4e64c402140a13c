"""Every flag and variable that a plugin knows has its effect, or a line that names it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devherd.errors import UsageError
from devherd.importers import PLUGINS, import_text
from devherd.importers.imported import GivenSettings
from devherd.importers.plugin import Invocation

NEEDED = [("rdma-shared", "config-file"), ("sriov", "config-file")]
"""The file in which the plugin's resources are."""
FLAGS = [(plugin.name, flag) for plugin in PLUGINS.values() for flag in sorted(plugin.flags)]
VARIABLES = [(plugin.name, variable) for plugin in PLUGINS.values() for variable in sorted(plugin.variables)]
VALUES = ("true", "false", "3", "x", "{name: a, groups: []}", "info", "/x/device-plugins")
"""One of them is a value that the flag takes and that is not its default."""
BESIDE = {"generic": ["--device", "{name: kvm, groups: []}"], "intel-gpu": ["-enable-monitoring"]}
"""What must be given as well: a domain has an effect on devices only."""
FILES = {
    "sriov": {"resourceList": [{"resourceName": "a", "selectors": {"isRdma": True}}]},
    "rdma-shared": {"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["ib0"]}]},
}


def imported(plugin, file, words=(), environment=None):
    """What becomes of it; None where it is refused."""
    try:
        return PLUGINS[plugin].imported(Invocation([*BESIDE.get(plugin, ()), *words], environment or {}), file)
    except UsageError:
        return None


def has_effect(plugin, name, **given):
    """Whether it changes the configuration or is named, without the plugin's file or with one."""
    for file in (None, FILES.get(plugin)):
        nothing, made = imported(plugin, file), imported(plugin, file, **given)
        if nothing and made and (made.config != nothing.config or any(name in note for note in made.notes)):
            return True
    return False


@pytest.mark.parametrize(("plugin", "flag"), [each for each in FLAGS if each not in NEEDED])
def test_a_flag_has_its_effect_or_is_named(plugin, flag):
    """Each alone, with values of every kind."""
    assert any(has_effect(plugin, flag, words=[f"-{flag}={value}"]) for value in VALUES)


@pytest.mark.parametrize(("plugin", "flag"), NEEDED)
def test_a_file_that_is_not_there_is_named(plugin, flag):
    """Users 3.3: the flags alone were no setting at all, and `No setting needed`."""
    with pytest.raises(UsageError, match=r"/x/config\.json"):
        PLUGINS[plugin].imported(Invocation([f"-{flag}=/x/config.json"]))


@pytest.mark.parametrize(("plugin", "variable"), VARIABLES)
def test_a_variable_has_its_effect_or_is_named(plugin, variable):
    """Also where the manifest takes its value from somewhere else."""
    values = (*VALUES, "ExactName", "Device")

    assert any(has_effect(plugin, variable, environment={variable: value}) for value in values)
    elsewhere = imported(plugin, None, environment={variable: None})
    assert any(variable in note for note in elsewhere.notes)


@given(
    st.dictionaries(st.sampled_from(["flags", "sharing", "imex", "resources"]), st.sampled_from(["a", "b"]), min_size=1)
)
def test_an_unknown_key_of_nvidias_file_is_named(sections):
    """The plugin ignores it; a slip of the pen deserves a line."""
    content = {"version": "v1"} | {section: {f"unknown-{key}": 1} for section, key in sections.items()}

    (imported,) = import_text(yaml.safe_dump(content), "the text", None)

    for section, key in sections.items():
        assert any(f"{section}.unknown-{key}" in note for note in imported.notes)


@given(
    st.recursive(
        st.dictionaries(st.text("ab", min_size=1), st.integers()),
        lambda inner: st.dictionaries(st.text("ab", min_size=1), inner),
    )
)
def test_what_nobody_takes_is_left(content):
    """Whatever the depth: a value is either taken or among those left."""
    settings = GivenSettings(content)

    assert len(list(settings.left())) == len(content)
    for key in content:
        settings.take(key)
    assert list(settings.left()) == []
