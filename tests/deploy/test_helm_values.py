"""Values of the Helm chart that are wrong are refused before anything is sent, and no others."""

import json
import re

import jsonschema
import pytest
import yaml
from charts import CHART
from kustomizations import of_kind

from devherd.config.describe import EXAMPLES
from devherd.config.model import Config

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CONFIGURATION = jsonschema.Draft7Validator({"$ref": "#/$defs/Config", "$defs": SCHEMA["$defs"]})
OF_OTHERS = {"#/$defs/Config", "#/definitions/affinity", "#/definitions/resources", "#/definitions/updateStrategy"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"components": ["nvdia"]}, "at '/components/0': value must be one of 'amd', 'amd-exporter', "),
        ({"imagge": {}}, "additional properties 'imagge' not allowed"),
        ({"image": {"digest": "sha256:12"}}, "at '/image/digest': 'sha256:12' does not match"),
        ({"image": {"pullPolicy": "always"}}, "at '/image/pullPolicy': value must be one of 'Always'"),
        ({"pools": [{"nodeSelector": {}}]}, "at '/pools/0': missing property 'name'"),
        ({"pools": [{"name": "A"}]}, "at '/pools/0/name': 'A' does not match"),
        ({"pools": [{"name": "a", "image": {}}]}, "at '/pools/0': additional properties 'image' not allowed"),
        ({"nodeSelector": {"gpu": True}}, "at '/nodeSelector/gpu': got boolean, want string"),
        ({"podMonitor": {"interval": 30}}, "at '/podMonitor/interval': got number, want string"),
        ({"kubeletDir": "kubelet"}, "at '/kubeletDir': 'kubelet' does not match"),
        ({"resourceQuota": {"pods": 0}}, "at '/resourceQuota/pods': minimum"),
        (
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}},
            "updateStrategy: both maxSurge and maxUnavailable are set — Kubernetes takes one of them — ",
        ),
        (
            {"components": ["host-network"], "updateStrategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}},
            "updateStrategy: maxSurge is set with the component host-network — ",
        ),
        (
            {"updateStrategy": {"rollingUpdate": {"maxSurge": 0}}},
            "updateStrategy: both maxSurge and maxUnavailable are 0 — no node would ever get a new pod — ",
        ),
        ({"updateStrategy": {"type": "Recreate"}}, "at '/updateStrategy/type': value must be one of 'RollingUpdate'"),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": "many"}}}, "at '/updateStrategy/rollingUpdate/maxSurge': "),
        ({"resources": {"limit": {}}}, "at '/resources': additional properties 'limit' not allowed"),
        ({"affinity": {"nodeAfinity": {}}}, "at '/affinity': additional properties 'nodeAfinity' not allowed"),
        ({"nameOverride": "My_Name"}, "at '/nameOverride': 'My_Name' does not match"),
        ({"fullnameOverride": "my name"}, "at '/fullnameOverride': 'my name' does not match"),
        ({"image": None}, "missing property 'image'"),
        ({"config": {"scan": {"perod": "5s"}}}, "at '/config/scan': additional properties 'perod' not allowed"),
        ({"configs": {"a": {"log_level": "dbug"}}}, "at '/configs/a/log_level': value must be one of 'debug', "),
        (
            {"pools": [{"name": "a", "config": {"vendors": {"nvidia": {"mig_strategy": "mixd"}}}}]},
            "at '/pools/0/config/vendors/nvidia/mig_strategy': value must be one of 'none', 'single', 'mixed'",
        ),
        (
            {"configs": {"a": {}, "b": {}}, "configDefault": "c"},
            "configDefault: c is none of configs — nodes without the label would have no configuration — name one of ",
        ),
        (
            {"config": {"log_format": "text"}},
            "config: log_format is set — the pod's DEVHERD_LOG_FORMAT comes before it — leave it out, or ",
        ),
        ({"configs": {"a": {"listen": ":80"}}}, "config: listen is set — the pod's DEVHERD_LISTEN comes before it — "),
        (
            {"prometheusRule": {"enabled": True, "without": ["DeviceWarnd"]}},
            "prometheusRule.without: there is no alert DeviceWarnd — it would go on firing under its right name — ",
        ),
        (
            {"components": ["node-condition"]},
            "components: node-condition is without events — the token by which it asks the API server comes with ",
        ),
        (
            {"components": ["nvidia-pause"]},
            "components: nvidia-pause is without its option — the GPUs would stay open while NVIDIA's managers ",
        ),
        (
            {"config": {"kubernetes": {"nvidia_pause": True}}},
            "config: kubernetes.nvidia_pause is true without the component nvidia-pause — the right to watch ",
        ),
        (
            {"pools": [{"name": "a", "components": ["nvidia-pause"], "configs": {"b": {}}}]},
            "components: nvidia-pause is without its option — ",
        ),
        (
            {
                "pools": [
                    {"name": "a", "nodeSelector": {"nvidia.com/gpu.deploy.client": "true"}},
                    {"name": "b", "rest": True},
                ]
            },
            "pools: a is on nodes by nvidia.com/gpu.deploy.client — while NVIDIA's managers have it paused, the node ",
        ),
        (
            {"pools": [{"name": "a", "nodeSelector": {"gpu": "a"}}, {"name": "b", "nodeSelector": {"gpu": "a"}}]},
            "pools: each node of b is one of a as well — two devherds on a node displace each other — ",
        ),
        (
            {
                "pools": [
                    {"name": "a", "nodeSelector": {"gpu": "a", "rack": "7"}},
                    {"name": "b", "nodeSelector": {"gpu": "a"}},
                ]
            },
            "pools: each node of a is one of b as well — ",
        ),
        (
            {"pools": [{"name": "a"}, {"name": "a"}]},
            "pools: two are named a — each needs a name of its own — rename one",
        ),
        (
            {"pools": [{"name": "a", "rest": True}, {"name": "b", "rest": True}]},
            "pools: a, b have rest — each node would be in all of them — leave it to one",
        ),
        (
            {"pools": [{"name": "a", "rest": True, "nodeSelector": {"gpu": "a"}}]},
            "pools: a has rest and nodes of its own — ",
        ),
        (
            {"pools": [{"name": "a", "nodeSelector": {"gpu": "a", "rack": "b"}}, {"name": "b", "rest": True}]},
            "pools: a is on nodes by more than one label — which nodes are the rest cannot be told — ",
        ),
    ],
)
def test_wrong_values_are_refused_with_their_place_and_what_is_wrong(helm, values, words):
    """Before anything is sent."""
    with pytest.raises(ValueError, match=r".") as refusal:
        helm.manifests(values)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"kubernetes": {"nvidia_pause": True}}},
        {"configs": {"a": {}, "b": {"kubernetes": {"nvidia_pause": True}}}, "configDefault": "a"},
        {"components": ["nvidia-pause", "config-by-label"]},
    ],
    ids=["its own configuration", "one of several", "a ConfigMap of the user's own"],
)
def test_the_component_nvidia_pause_goes_with_its_option_wherever_that_is(helm, values):
    """Of a ConfigMap of the user's own nothing is known here."""
    manifests = helm.manifests({"components": ["nvidia-pause"]} | values)
    assert len(of_kind("DaemonSet", manifests)) == 1


@pytest.mark.parametrize("value", sorted(VALUES.keys() - set(SCHEMA["required"])))
def test_a_value_that_is_there_without_anything_is_as_if_it_were_not(helm, value):
    """`tolerations:` and nothing behind it, where a file of values has all below it commented out."""
    manifests = helm.manifests({value: None})
    assert len(of_kind("DaemonSet", manifests)) == 1


@pytest.mark.parametrize("section", EXAMPLES)
def test_a_configuration_that_devherd_takes_is_no_wrong_value(section):
    """The schema has the program's own part for it (docs/generate/chart_schema.py); either spelling of a key goes."""
    configuration = yaml.safe_load(EXAMPLES[section])
    CONFIGURATION.validate(configuration)
    path = {"path": "/dev/x"}
    for spelling in ({"mountPath": "/y", "readOnly": True}, {"mount_path": "/y", "read_only": True}):
        generic = {"generic": [{"name": "a/b", "groups": [{"paths": [path | spelling]}]}]}
        assert Config.model_validate(generic)
        CONFIGURATION.validate(generic)


def test_the_schema_knows_every_value_and_no_other():
    """Below each switch as well; those of a pool are the common ones, its name and whether it has the rest."""
    assert shape_of_schema(SCHEMA) - {"global"} == shape_of_values(VALUES)
    of_a_pool = SCHEMA["properties"]["pools"]["items"]["properties"].keys()
    common = list(VALUES)[list(VALUES).index("pools") + 1 : list(VALUES).index("podMonitor")]
    assert list(of_a_pool) == ["name", "rest", *common]


def shape_of_schema(schema, prefix=""):
    """The paths of all values of which the schema names the keys."""
    if schema.get("$ref") in OF_OTHERS:
        return {prefix.rstrip(".")}
    schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "properties" not in schema:
        return {prefix.rstrip(".")}
    return set().union(*(shape_of_schema(each, f"{prefix}{key}.") for key, each in schema["properties"].items()))


def shape_of_values(values, prefix=""):
    """The same for values.yaml; what is a map of the user's own has no shape."""
    if prefix == "dashboard.labels." or not isinstance(values, dict) or not values:
        return {prefix.rstrip(".")}
    return set().union(*(shape_of_values(each, f"{prefix}{key}.") for key, each in values.items()))


def test_each_value_is_explained_above_it():
    """There is no other table of them. A value without a comment is a group, whose values have one."""
    comment, inside, unexplained = False, -1, []
    for line in (CHART / "values.yaml").read_text().splitlines():
        indent = len(line) - len(line.lstrip())
        if 0 <= inside < indent and line:
            continue
        if match := re.match(r" *(\w+):(.*)", line):
            inside = indent if comment else -1
            if match[2] and not comment:
                unexplained.append(match[1])
        comment = line.lstrip().startswith("# ")
    assert unexplained == []
