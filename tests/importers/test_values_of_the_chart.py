"""`config import --helm`: values of devherd's chart, which its schema and Helm take."""

import json

import jsonschema
import pytest
import yaml
from charts import CHART
from kustomizations import of_kind
from test_what_is_served import EXAMPLES

from devherd.cli import main
from devherd.errors import UsageError
from devherd.importers import helm_values, import_text

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
SHARED = "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
PLUGINS_CHART = {
    "apiVersion": "helm.toolkit.fluxcd.io/v2",
    "kind": "HelmRelease",
    "metadata": {"name": "nvidia-device-plugin"},
    "spec": {
        "chart": {"spec": {"chart": "nvidia-device-plugin"}},
        "values": {
            "config": {
                "default": "plain",
                "map": {
                    "plain": "version: v1\nflags: {migStrategy: none}\n",
                    "shared": f"version: v1\nsharing: {SHARED}\n",
                },
            }
        },
    },
}
OPERATOR = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"mig": {"strategy": "mixed"}}}
RDMA = {"configList": [{"resourceName": "a", "rdmaHcaMax": 3, "selectors": {"vendors": ["15b3"]}}]}


def values_of(*documents, plugin=None):
    texts = [each if isinstance(each, str) else yaml.safe_dump(each) for each in documents]
    made = helm_values(import_text("---\n".join(texts), "the text", plugin))
    SCHEMA.validate(DEFAULTS | made.values)
    return made.values


def rendered(helm, values):
    """The configuration that the pod has."""
    [config] = [each["data"]["config.yaml"] for each in of_kind("ConfigMap", helm.manifests(values | {"nodes": "nfd"}))]
    return yaml.safe_load(config) or {}


def test_an_import_for_helm_is_a_file_of_values_that_helm_takes_as_it_is(helm, capsys, tmp_path):
    """Defect: nothing showed how an imported file enters the chart."""
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(OPERATOR))
    assert main(["config", "import", "--helm", str(file)]) == 0
    said = capsys.readouterr().out
    values = yaml.safe_load(said)
    assert said.startswith("# values of devherd's chart for what nvidia did\n")
    assert (values["vendors"], values["components"]) == (["nvidia"], ["nvidia-operator"])
    assert values["config"]["vendors"]["nvidia"]["mig_strategy"] == "mixed"
    SCHEMA.validate(DEFAULTS | values)
    assert rendered(helm, values) == values["config"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_values_for_every_plugin_are_rendered_with_the_imported_configuration(helm, name):
    """The components that its options need come with its vendor."""
    _, documents, _ = EXAMPLES[name]
    text = documents if isinstance(documents, str) else yaml.safe_dump_all(documents)
    plugin = "xilinx" if name == "Xilinx" else None
    (found,) = import_text(text, "the text", plugin)
    values = helm_values([found]).values
    SCHEMA.validate(DEFAULTS | values)
    of_pod = {key: value for key, value in found.config.items() if key not in {"listen", "host_root", "kubelet_dir"}}
    assert rendered(helm, values) == of_pod


def test_several_configurations_of_a_plugin_are_chosen_by_the_label_of_a_node(helm):
    """As they were; the default stays the default."""
    values = values_of(PLUGINS_CHART)
    assert (list(values["configs"]), values["configDefault"]) == (["plain", "shared"], "plain")
    manifests = helm.manifests(values | {"nodes": "nfd"})
    [configs] = [each for each in of_kind("ConfigMap", manifests) if each["metadata"]["name"].endswith("-configs")]
    assert {key: yaml.safe_load(text) or {} for key, text in configs["data"].items()} == values["configs"]


def test_the_plugins_of_one_stream_are_one_configuration():
    """A node has one devherd."""
    values = values_of(OPERATOR, RDMA)
    assert values["vendors"] == ["nvidia", "rdma"]
    assert values["config"]["vendors"].keys() == {"nvidia", "rdma"}


def test_two_plugins_that_differ_in_a_key_are_not_made_one():
    """One of them would silently lose."""
    debug = "--log-level=debug --device '{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}'"
    (generic,), (gpu,) = (
        import_text(text, "a", None) for text in (f"generic-device-plugin {debug}", "-shared-dev-num 2")
    )
    gpu.config["log_level"] = "info"
    with pytest.raises(UsageError, match="two plugins differ in log_level"):
        helm_values([generic, gpu])


def test_what_the_pod_decides_itself_is_left_out_and_said():
    """The chart would refuse it."""
    flags = "--listen=:9000 --device '{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}'"
    made = helm_values(import_text(f"generic-device-plugin {flags}", "a", None))
    assert made.values.keys() == {"config"}
    assert "listen" not in made.values["config"]
    assert any(note.startswith("listen 0.0.0.0:9000 is left out: the pod listens") for note in made.notes)
    assert not made.is_whole


def test_values_without_a_setting_name_the_vendor_alone(capsys, tmp_path):
    """`config` is not needed."""
    file = tmp_path / "flags"
    file.write_text("nvidia-device-plugin --mig-strategy=none")
    assert main(["config", "import", "--helm", str(file)]) == 0
    said = capsys.readouterr().out
    assert yaml.safe_load(said) == {"vendors": ["nvidia"]}
    assert "# No setting needed: the defaults serve the same\n" in said
    assert main(["config", "import", "--helm", f"--directory={tmp_path}", str(file)]) == 2
