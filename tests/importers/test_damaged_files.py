"""Whatever is wrong with a file of another plugin is one error with a cure, and never a traceback."""

import copy

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from devherd.cli import import_config
from devherd.errors import UsageError
from devherd.importers import import_text

NVIDIA_FILE = {
    "version": "v1",
    "flags": {"migStrategy": "mixed", "plugin": {"deviceListStrategy": ["envvar"], "passDeviceSpecs": True}},
    "resources": {"gpus": [{"pattern": "*H100*", "name": "h100"}], "mig": [{"pattern": "1g.10gb", "name": "small"}]},
    "sharing": {"timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
}
PLUGINS_CHART = {"migStrategy": "mixed", "config": {"map": {"a": yaml.safe_dump(NVIDIA_FILE)}, "default": "a"}}
OPERATORS_CHART = {
    "mig": {"strategy": "mixed"},
    "hostPaths": {"driverInstallDir": "/run/x"},
    "toolkit": {"enabled": True, "installDir": "/opt"},
    "devicePlugin": {
        "config": {"name": "c", "data": {"a": yaml.safe_dump(NVIDIA_FILE)}},
        "env": [{"name": "PASS_DEVICE_SPECS", "value": "true"}],
        "args": ["--mig-strategy=none"],
        "mps": {"root": "/run/mps"},
    },
}
RDMA = {
    "periodicUpdateInterval": 300,
    "configList": [{"resourceName": "hca", "rdmaHcaMax": 100, "selectors": {"vendors": ["15b3"], "ifNames": ["ib0"]}}],
}
SRIOV = {
    "resourceList": [
        {
            "resourceName": "rdma_vf",
            "resourcePrefix": "a.example",
            "selectors": [{"isRdma": True, "vendors": ["15b3"], "pfNames": ["ens1f0#0,2-5"], "rootDevices": ["x#1-2"]}],
        }
    ]
}
GENERIC = {"domain": "a.b", "devices": [{"name": "kvm", "groups": [{"count": 2, "paths": [{"path": "/dev/kvm"}]}]}]}
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "plugin"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "nvidia-device-plugin-ctr",
                        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0",
                        "command": ["nvidia-device-plugin"],
                        "args": ["--mig-strategy=mixed", "--pass-device-specs"],
                        "env": [{"name": "FAIL_ON_INIT_ERROR", "value": "false"}],
                    }
                ]
            }
        }
    },
}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": yaml.safe_dump(NVIDIA_FILE)}}
POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": OPERATORS_CHART}
FILES = (NVIDIA_FILE, PLUGINS_CHART, OPERATORS_CHART, RDMA, SRIOV, GENERIC, DAEMON_SET, CONFIG_MAP, POLICY)
OTHERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}), st.just([[]]),
    st.just([{}]), st.just({"a": 1}), st.just(["a"]), st.just({1: None}),
)  # fmt: skip


def places(content):
    """The way to each value of it."""
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inside:
        yield (key,)
        yield from ((key, *way) for way in places(value))


@st.composite
def damaged(draw):
    """A file in which values have others in their places, or are missing."""
    content = copy.deepcopy(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(1, 3))):
        ways = list(places(content))
        if not ways:
            break
        *above, key = draw(st.sampled_from(ways))
        holder = content
        for each in above:
            holder = holder[each]
        if draw(st.booleans()):
            holder[key] = copy.deepcopy(draw(OTHERS))
        elif isinstance(holder, dict):
            del holder[key]
    return content


@pytest.mark.parametrize("content", FILES)
def test_what_is_not_damaged_is_imported(content):
    """Else nothing would be tested below."""
    for found in import_text(yaml.safe_dump(content), "the file", None, with_ignored=True):
        import_config._check(found, "the file")


@settings(max_examples=1000)
@given(damaged(), st.booleans())
def test_a_damaged_file_is_imported_or_refused_in_words(content, with_ignored):
    """A list where keys belong was a traceback."""
    try:
        for found in import_text(yaml.safe_dump(content), "the file", None, with_ignored=with_ignored):
            import_config._check(found, "the file")
    except UsageError:
        pass  # it says what is wrong, why and what to do


@pytest.mark.parametrize(
    ("configurations", "said"),
    [
        (["a"], "`config.map` is not a section — it is a list — give it keys, one a line and indented"),
        ({"a": "hello"}, "`config.map.a` is not a section — it is `hello` — give it keys, one a line and indented"),
        ({"a": 3}, "`config.map.a` is not a section — it is `3` — give it keys, one a line and indented"),
        (
            {"a": "\tflags:"},
            "`config.map.a` is not valid YAML at line 1, column 1 — the line is indented with a tab",
        ),
    ],
)
def test_a_configuration_of_the_chart_that_cannot_be_read_is_named(configurations, said):
    """It became one in which no setting is needed."""
    with pytest.raises(UsageError) as refused:
        import_text(yaml.safe_dump({"config": {"map": configurations}}), "the file", None)
    assert str(refused.value).startswith(said)


def test_each_configuration_of_the_chart_is_one_of_its_own():
    """As text, which the chart wants, or as keys."""
    values = {"config": {"map": {"none": "version: v1\nflags: {migStrategy: none}", "mixed": NVIDIA_FILE, "empty": ""}}}
    found = import_text(yaml.safe_dump(values), "the file", None)
    assert {each.name: each.config.get("vendors", {}).get("nvidia", {}).get("mig_strategy") for each in found} == {
        "none": None,
        "mixed": "mixed",
        "empty": None,
    }


def test_a_value_that_nvidias_file_cannot_have_is_named_with_its_key():
    """In the words of a bad configuration."""
    content = NVIDIA_FILE | {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": "x"}]}}}
    with pytest.raises(UsageError) as refused:
        import_text(yaml.safe_dump(content), "the file", None)
    said = "bad value of sharing.timeSlicing.resources[0].replicas — `x` is not a whole number — write one, like `4`"
    assert str(refused.value) == said
