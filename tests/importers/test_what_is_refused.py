"""Files that hold no configuration of a plugin are refused by their name, with the reason and what to give instead."""

import pytest
import yaml

from devherd.cli import main
from devherd.errors import UsageError
from devherd.importers import PLUGINS, import_text


def workload(kind, image, name="main", **container):
    pod = {"containers": [{"name": name, "image": image, **container}]}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }


def custom(kind, group, **spec):
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}


NODE_POLICY = custom(
    "SriovNetworkNodePolicy",
    "sriovnetwork.openshift.io",
    resourceName="r1",
    isRdma=True,
    nicSelector={"vendor": "15b3"},
)
AKRI = custom("Configuration", "akri.sh", discoveryHandler={"name": "onvif", "discoveryDetails": ""})
NETWORK_OPERATOR = {
    "deployCR": True,
    "rdmaSharedDevicePlugin": {"deploy": True, "resources": [{"name": "r1", "ifNames": ["ens3"]}]},
}


@pytest.mark.parametrize(
    ("document", "what", "instead"),
    [
        (NODE_POLICY, "sriovnetwork.openshift.io/SriovNetworkNodePolicy", "configmap device-plugin-config"),
        (AKRI, "akri.sh/Configuration", "docs/classes.md"),
        (NETWORK_OPERATOR, "the values of the chart network-operator", "nicclusterpolicies"),
    ],
)
def test_what_is_known_and_has_no_translation_is_refused_by_its_name(document, what, instead):
    """Defect: it was not recognised, and the advice was to name a plugin, or to give other operators' objects."""
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    with pytest.raises(UsageError, match=f"cannot convert {what}, in the file") as refusal:
        import_text(text, "the file", None)
    assert instead in refusal.value.cure


@pytest.mark.parametrize(
    "document",
    [
        workload("DaemonSet", "docker.io/rocm/device-config-manager:v1.4.1", "amdgpu-device-config-manager-container"),
        workload("Job", "docker.io/rocm/test-runner:v1.4.0", "amd-test-runner"),
        workload("DaemonSet", "docker.io/rocm/device-metrics-exporter:v1.4.0", "metrics-exporter-container"),
        workload("Deployment", "nginx:1.27"),
    ],
    ids=lambda document: document["spec"]["template"]["spec"]["containers"][0]["image"],
)
def test_a_workload_that_is_no_plugin_is_none_whoever_made_it(document, capsys, tmp_path):
    """Defect: ROCm's config manager and test runner were AMD's plugin, of which every default was called right."""
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(document))
    assert main(["config", "import", str(file)]) == 2
    said = capsys.readouterr()
    [container] = document["spec"]["template"]["spec"]["containers"]
    assert not said.out
    assert f"{container['image']}: no plugin that is known" in said.err


def test_an_object_of_an_operator_that_starts_no_plugin_says_so():
    """Defect: NicClusterPolicy was "not read", and stood among those that are."""
    policy = custom("NicClusterPolicy", "mellanox.com", ofedDriver={"version": "25.07"})
    with pytest.raises(UsageError) as refusal:
        import_text(yaml.safe_dump(policy), "the file", None)
    assert refusal.value.why == "mellanox.com/NicClusterPolicy starts no plugin, or one without a file"


@pytest.mark.parametrize("plugin", sorted(PLUGINS))
@pytest.mark.parametrize(
    "document", [NODE_POLICY, AKRI, NETWORK_OPERATOR, {"some": "thing"}, workload("Job", "nginx", args=["-x"])]
)
def test_nobody_who_has_named_the_plugin_is_told_to_name_it(document, plugin):
    """Whatever the file is."""
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    with pytest.raises(UsageError) as refusal:
        import_text(text, "the file", plugin)
    assert "--plugin" not in str(refusal.value)
