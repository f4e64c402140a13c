"""Values of a chart that installs a plugin's chart as its dependency: they are one key further down."""

import pytest
import yaml

from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.importers import import_text

NVIDIA = {"migStrategy": "mixed", "config": {"map": {"default": "version: v1\nflags: {gdsEnabled: true}\n"}}}
OPERATOR = {"mig": {"strategy": "single"}, "driver": {"enabled": False}, "cdi": {"enabled": False}}


def imported(values, plugin=None):
    """What a values file becomes: plugin, its section of `vendors`, notes."""
    found = import_text(yaml.safe_dump(values, sort_keys=False), "values.yaml", plugin)
    for each in found:
        Config.model_validate(each.config)
    return [(each.plugin, each.config.get("vendors", {}), each.notes) for each in found]


@pytest.mark.parametrize("plugin", [None, "nvidia"])
@pytest.mark.parametrize("chart", [("nvidia-device-plugin", NVIDIA), ("gpu-operator", OPERATOR)])
def test_the_section_of_a_chart_is_read_as_the_charts_own_values(chart, plugin):
    """With a note for each other section, and the switch of the dependency is no value."""
    name, values = chart
    ((_, alone, notes),) = imported(values, plugin)

    ((_, nested, more),) = imported({name: {"enabled": True, **values}, "prometheus": {"retention": "1d"}}, plugin)

    assert nested == alone
    assert nested["nvidia"]["mig_strategy"] in {"mixed", "single"}
    assert sorted(more) == sorted([*notes, "prometheus is left out: it is not the chart of a plugin"])


def test_the_chart_of_amds_plugin_has_no_settings_but_for_its_pods():
    """It starts the plugin without flags; the labeller's counterpart is named."""
    ((plugin, section, notes),) = imported({"amd-gpu": {"labeller": {"enabled": True}, "dp": {"image": {"tag": "1"}}}})

    assert (plugin, section) == ("amd", {})
    assert [note.split(":")[0] for note in notes] == ["labeller is left out", "dp left out"]


def test_the_chart_of_intels_gpu_plugin_has_monitoring_on_by_default():
    """As its own values file has it; what is given is what the operator's object would say."""
    values = {"sharedDevNum": 4, "allocationPolicy": "packed", "image": {"tag": "0.36.0"}, "tolerations": []}
    expected = {"intel_gpu": {"shared_devices": 4, "allocation_policy": "packed", "monitoring": "single"}}

    assert imported({"intel-device-plugins-gpu": values}) == [("intel-gpu", expected, [])]
    assert imported(values) == [("intel-gpu", expected, [])]


def test_several_plugins_of_one_chart_are_several_configurations():
    """One that is switched off is none."""
    both = {"nvidia-device-plugin": NVIDIA, "amd-gpu": None}

    assert [plugin for plugin, _, _ in imported(both)] == ["nvidia", "amd"]
    ((plugin, _, notes),) = imported(both | {"amd-gpu": {"enabled": False}})
    assert (plugin, notes[-1]) == ("nvidia", "amd-gpu is left out: `enabled` is false")
    ((plugin, _, notes),) = imported(both, "nvidia")
    assert (plugin, notes[-1]) == ("nvidia", "amd-gpu is left out: it belongs to amd")


@pytest.mark.parametrize(
    ("values", "plugin", "why", "cure"),
    [
        (
            {"network-operator": {"deploy": True}},
            None,
            "`devherd config import` reads what it renders, not its values",
            "helm template",
        ),
        ({"nvidia-device-plugin": {"migStrategie": "x"}}, None, "its keys are migStrategie", "helm template"),
        ({"nvidia-device-plugin": "x"}, None, "it has no keys", "give it the values of its chart"),
        ({"amd-gpu": {"enabled": False}}, None, "`enabled` is false", "a chart that is installed"),
        ({"amd-gpu": {}}, "nvidia", "it belongs to amd", "leave out --plugin"),
        (
            {"gpus": NVIDIA},
            None,
            "its section `gpus` could be values of the chart nvidia-device-plugin",
            "call the",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_cure(values, plugin, why, cure):
    """Rather than be called `No setting needed`."""
    with pytest.raises(UsageError) as refused:
        import_text(yaml.safe_dump(values), "values.yaml", plugin)

    assert why in refused.value.why
    assert cure in refused.value.cure
