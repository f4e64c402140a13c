"""What operators really have in their clusters, and what `config import` makes of it."""

import pytest
import yaml

from devherd.cli import main
from devherd.config.model import Config
from devherd.errors import DevherdError
from devherd.importers import import_text


def only(text, plugin=None, **options):
    """The only configuration that a text becomes, and what is said of it."""
    (found,) = import_text(text if isinstance(text, str) else yaml.safe_dump(text), "the text", plugin, **options)
    Config.model_validate(found.config)
    return found


def daemon_set(*containers, name="plugin"):
    pod = {"containers": list(containers)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": data}


def variables(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


OPERATORS_CONTAINER = {
    "name": "nvidia-device-plugin",
    "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0",
    "command": ["/bin/sh", "-c"],
    "args": ["/bin/entrypoint.sh"],
    "env": variables(PASS_DEVICE_SPECS="true", MIG_STRATEGY="single", DEVICE_LIST_STRATEGY="cdi-annotations,cdi-cri"),
}
OPERATORS_RESULT = {
    "mig_strategy": "single",
    "pass_device_specs": True,
    "device_list_strategy": ["cdi-annotations", "cdi-cri"],
}


def test_the_daemon_set_of_nvidias_operator_is_read_from_its_variables():
    """It starts a script; what that decides on the node is said (nvidia M7)."""
    manager = {"name": "config-manager", "image": OPERATORS_CONTAINER["image"], "command": ["config-manager"]}

    found = only(daemon_set(OPERATORS_CONTAINER, manager))

    assert found.config == {"vendors": {"nvidia": OPERATORS_RESULT}}
    assert "driver_root: /run/nvidia/driver" in " ".join(found.notes)
    assert "nvidia_fs" in " ".join(found.notes)


def test_a_cluster_policy_becomes_what_the_operator_would_start():
    """Nvidia S4: its own settings are stronger than what follows from other sections."""
    policy = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "spec": {
            "mig": {"strategy": "mixed"},
            "driver": {"enabled": False},
            "toolkit": {"enabled": True, "installDir": "/opt/toolkit"},
            "cdi": {"enabled": True},
            "gds": {"enabled": True},
            "devicePlugin": {
                "enabled": True,
                "config": {"name": "plugin-config"},
                "env": variables(DEVICE_LIST_STRATEGY="cdi-cri"),
                "tolerations": [],
            },
        },
    }

    found = only(policy)

    assert found.config["vendors"]["nvidia"] == {
        "mig_strategy": "mixed",
        "mps_root": "/run/nvidia/mps",
        "pass_device_specs": True,
        "device_list_strategy": ["cdi-cri"],
        "cdi_hook_path": "/opt/toolkit/toolkit/nvidia-cdi-hook",
        "gds_enabled": True,
        "mofed_enabled": True,
    }
    assert "the file of CONFIG_FILE is not read: import it in one stream with this" in found.notes
    assert "devicePlugin.tolerations is left out: a setting of the plugin's pods" in found.notes


@pytest.mark.parametrize(
    ("spec", "is_named"),
    [
        ({}, True),
        ({"driver": {"enabled": False}}, True),
        ({"migManager": {"enabled": False}}, True),
        ({"driver": {"enabled": False}, "migManager": {"enabled": False}}, False),
    ],
    ids=["both", "MIG manager", "driver", "neither"],
)
def test_the_component_for_the_operators_managers_is_named_where_one_is_on(spec, is_named):
    """Else the first upgrade of the driver waits for devherd's pod. Both are on unless they are switched off."""
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec}
    assert any("the component nvidia-operator" in note for note in only(policy).notes) == is_named


def test_values_of_the_operators_chart_have_a_configuration_for_each_of_theirs():
    """`devicePlugin.config.data`, by name; the policy's settings go with each."""
    values = {
        "driver": {"enabled": True},
        "cdi": {"enabled": False},
        "devicePlugin": {
            "config": {
                "create": True,
                "name": "x",
                "data": {"all": "version: v1", "half": "flags: {migStrategy: none}"},
            }
        },
        "mig": {"strategy": "single"},
    }

    found = import_text(yaml.safe_dump(values), "the text", None)

    assert [each.name for each in found] == ["all", "half"]
    for each in found:
        assert each.config["vendors"]["nvidia"]["mig_strategy"] == "single"
        assert each.config["vendors"]["nvidia"]["driver_root"] == "/run/nvidia/driver"


@pytest.mark.parametrize("plugin", [None, "nvidia"])
def test_values_of_nvidias_chart_are_read_with_its_configurations(plugin):
    """Nvidia S3: they were called empty, or refused."""
    values = {
        "migStrategy": "mixed",
        "deviceListStrategy": "cdi-cri",
        "compatWithCPUManager": True,
        "config": {"map": {"default": "version: v1\nflags: {gdsEnabled: true}\n"}, "default": "default"},
        "image": {"tag": "v0.20.0"},
    }

    found = only(values, plugin)

    assert found.name == "default"
    assert found.config["vendors"]["nvidia"] == {
        "mig_strategy": "mixed",
        "pass_device_specs": True,
        "device_list_strategy": ["cdi-cri"],
        "gds_enabled": True,
    }
    assert any(note.startswith("image left out") for note in found.notes)


def test_values_with_a_key_that_no_chart_has_are_refused_by_name():
    """They are of something else: `No setting needed` would be a lie."""
    with pytest.raises(DevherdError, match="its keys are migStrategie, replicaCount"):
        import_text("{migStrategie: mixed, replicaCount: 3}", "the text", "nvidia")


def test_a_manifest_and_its_config_map_are_one_configuration():
    """The container's variables are stronger than the file."""
    stream = [
        daemon_set(OPERATORS_CONTAINER | {"command": ["nvidia-device-plugin"], "args": []}),
        config_map(**{"config.yaml": "version: v1\nflags: {migStrategy: mixed, mofedEnabled: true}\n"}),
    ]

    found = only(yaml.safe_dump_all(stream))

    assert found.config["vendors"]["nvidia"] == OPERATORS_RESULT | {"mofed_enabled": True}


def test_generic_device_plugins_daemon_set_and_config_map_are_one_configuration():
    """The domain of the one is that of the devices of the other (intel W1)."""
    container = {
        "image": "ghcr.io/squat/generic-device-plugin:latest",
        "args": ["--config", "/etc/config.yaml"],
        "env": variables(DOMAIN="squat.ai"),
    }
    devices = "devices:\n- {name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}\n"

    found = only(yaml.safe_dump_all([config_map(**{"config.yaml": devices}), daemon_set(container)]))

    assert found.config == {"generic": [{"name": "squat.ai/kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]}
    assert found.notes == []


@pytest.mark.parametrize(("tag", "domain"), [("0.1.0", "squat.ai"), ("0.2.0", "devic.es"), ("v0.3.1", "devic.es")])
def test_the_domain_follows_the_release_of_generic_device_plugin(tag, domain):
    """Intel W3: the image names the release, and the release its default."""
    container = {
        "image": f"squat/generic-device-plugin:{tag}",
        "args": ["--device", "{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}"],
    }

    found = only(daemon_set(container))

    assert found.config["generic"][0]["name"] == f"{domain}/kvm"
    assert found.notes == []


@pytest.mark.parametrize(
    ("image", "monitoring"),
    [
        ("intel/intel-gpu-plugin:0.28.0", "split"),
        ("registry.local:5000/intel/intel-gpu-plugin:v0.35.0", "split"),
        ("intel/intel-gpu-plugin:0.36.0", "single"),
        ("intel/intel-gpu-plugin:devel", "single"),
        ("intel/intel-gpu-plugin@sha256:0000", "single"),
    ],
)
def test_the_monitoring_resource_is_that_of_the_release(image, monitoring):
    """Intel B5: before 0.36 each driver had its own; where the image does not tell, that is said."""
    found = only(daemon_set({"image": image, "args": ["-enable-monitoring"]}))

    assert found.config["vendors"]["intel_gpu"] == {"monitoring": monitoring}
    names_a_release = image.endswith((".0", ".1"))
    assert any("monitoring: split" in note for note in found.notes) != names_a_release


@pytest.mark.parametrize("given", ["true", "True", "TRUE", "1", "t", "T"])
def test_truth_is_what_go_takes_for_it(given):
    """Intel B6: monitoring was lost for every word but `true`."""
    assert only(f"-enable-monitoring={given} -shared-dev-num=0x10").config == {
        "vendors": {"intel_gpu": {"monitoring": "single", "shared_devices": 16}}
    }


def test_switches_of_the_log_swallow_no_flag():
    """Intel B6, C1: klog's `one_output` is one, and newer releases have more."""
    words = "-one_output -legacy_stderr_threshold_behavior -alsologtostderrthreshold 2 -mode=region"

    found = only(words, "intel-fpga")

    assert found.config == {"vendors": {"intel_fpga": {"mode": "region"}}}
    (note,) = found.notes
    assert "-one_output" in note


@pytest.mark.parametrize(
    ("document", "section"),
    [
        (
            {
                "kind": "GpuDevicePlugin",
                "spec": {"image": "intel/intel-gpu-plugin:0.35.0", "sharedDevNum": 10, "enableMonitoring": True},
            },
            {"intel_gpu": {"shared_devices": 10, "monitoring": "split"}},
        ),
        (
            {"kind": "GpuDevicePlugin", "spec": {"bypathMode": "none", "denyIDs": "0x56C0", "logLevel": 4}},
            {"intel_gpu": {"bypath": "none", "deny_ids": ["0x56c0"]}},
        ),
        ({"kind": "FpgaDevicePlugin", "spec": {"mode": "region"}}, {"intel_fpga": {"mode": "region"}}),
    ],
)
def test_objects_of_intels_operator_are_read(document, section):
    """Intel W1: docs/switch.md names both kinds."""
    assert only({"apiVersion": "deviceplugin.intel.com/v1", **document}).config == {"vendors": section}


def test_a_key_of_an_operators_object_that_has_no_counterpart_is_named():
    """Also one that a later release of the operator brings."""
    found = only(
        {
            "apiVersion": "deviceplugin.intel.com/v1",
            "kind": "GpuDevicePlugin",
            "spec": {"provisioningConfig": "x", "image": "y"},
        }
    )

    assert found.notes == ["spec.provisioningConfig is left out: it has no counterpart"]


def test_sidecars_of_intels_overlays_are_no_plugins():
    """Intel W1: levelzero, health and wsl were refused as two configurations."""
    plugin = {"name": "intel-gpu-plugin", "image": "intel/intel-gpu-plugin:0.36.0", "args": ["-health-management"]}
    sidecar = {"name": "intel-gpu-levelzero", "image": "intel/intel-gpu-levelzero:0.36.0", "args": ["-v=2"]}
    webhook = {"name": "manager", "image": "intel/intel-fpga-admissionwebhook:0.36.0"}

    found = only(yaml.safe_dump_all([daemon_set(plugin, sidecar), daemon_set(webhook)]))

    assert found.plugin == "intel-gpu"
    assert "-health-management is left out" in found.notes[0]


def test_patches_of_an_overlay_are_read_by_their_arguments():
    """A strategic merge without an image, and changes of JSON; the same for two containers counts once."""
    merge = daemon_set({"name": "intel-gpu-plugin", "args": ["-shared-dev-num=30"]})
    changes = [
        {"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["-wsl"]},
        {"op": "add", "path": "/spec/template/spec/containers/1/args/-", "value": "-wsl"},
    ]

    assert only(merge).config == {"vendors": {"intel_gpu": {"shared_devices": 30}}}
    assert only(changes).notes == ["-wsl is left out: GPUs under WSL are not served"]


def test_the_plugin_that_is_named_decides_where_the_image_does_not_tell():
    """Intel W2: a mirror's image, beside a container of something else."""
    mirrored = {"name": "main", "image": "registry.local/mirror/gpu-plugin:0.36.0", "args": ["-shared-dev-num=2"]}
    other = {"name": "proxy", "image": "registry.local/proxy", "args": ["--upstream=x"]}

    with pytest.raises(DevherdError, match="name its plugin with --plugin"):
        import_text(yaml.safe_dump(daemon_set(mirrored, other)), "the text", None)
    assert only(daemon_set(mirrored, other), "intel-gpu").config == {"vendors": {"intel_gpu": {"shared_devices": 2}}}


def test_a_shell_that_starts_the_plugin_is_looked_through():
    """AMD's operator does so (amd B3); a script of several commands stays unread."""
    words = "exec ./k8s-device-plugin -logtostderr=true -v=5 -resource_naming_strategy=mixed"
    container = {"name": "device-plugin", "image": "docker.io/rocm/k8s-device-plugin:1", "command": ["sh", "-c", words]}

    assert only(daemon_set(container)).config == {"vendors": {"amd": {"naming": "mixed"}}}


def test_xilinx_variables_become_options():
    """Whatever the case of the letters; its names and virtual devices are said to be left out."""
    container = {
        "image": "xilinxatg/xilinx_k8s_fpga_plugin:latest",
        "env": variables(U30NameConvention="exactName", U30AllocUnit="Device", VirtualDev="True", VirtualNum="4"),
    }

    found = only(daemon_set(container))

    assert found.config == {
        "vendors": {"xilinx_fpga": {"u30_name_convention": "exact_name", "u30_alloc_unit": "device"}}
    }
    assert found.notes[0].startswith("VirtualDev, VirtualNum are left out")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            daemon_set({"name": "gfd", "command": ["gpu-feature-discovery"]}),
            "gpu-feature-discovery advertises no devices",
        ),
        ({"kind": "Kustomization", "apiVersion": "kustomize.config.k8s.io/v1"}, "render it: kubectl kustomize"),
        ({"resources": ["../../base"], "namespace": "x"}, "render it: kubectl kustomize"),
    ],
)
def test_what_holds_no_configuration_says_why(document, reason):
    """The cure is in the message."""
    with pytest.raises(DevherdError, match=reason):
        import_text(yaml.safe_dump(document), "the text", None)


IGNORED = """
version: v1
resources: {gpus: [{pattern: "*A100*", name: a100}], mig: [{pattern: "1g.*", name: small}]}
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 2, devices: [0], rename: half}, {name: a100, replicas: 3}]
"""


def test_what_nvidias_plugin_ignores_is_ignored_and_said():
    """Nvidia M6: every GPU stays `nvidia.com/gpu`, with all of them shared, as running workloads ask for them."""
    found = only(IGNORED)

    assert found.config["resources"] == [
        {"match": {"vendor": "nvidia", "resource_name": "nvidia.com/gpu"}, "sharing": {"replicas": 2}}
    ]
    said = " ".join(found.notes)
    for key in ("resources.gpus", "resources.mig", "timeSlicing.resources.rename", "timeSlicing.resources.devices"):
        assert f"{key} is left out: the plugin ignores it; --with-ignored gives it its effect" in said
    assert "the sharing of nvidia.com/a100 is left out" in said


def test_patterns_of_products_match_whole_gpus_only():
    """Nvidia M5: a MIG device has its GPU's model, and is no GPU of that name."""
    rules = only(IGNORED, with_ignored=True).config["resources"]

    by_model = [rule for rule in rules if "model" in rule["match"]]
    assert by_model
    assert all({"mig_profile": "*"} in rule["match"]["exclude"] for rule in by_model)


SHARED_BY_FOUR = {
    "config": {
        "map": {"default": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"}
    }
}
CHART = {"migStrategy": "mixed", "runtimeClassName": "nvidia", **SHARED_BY_FOUR}


def helm_object(api, kind, **spec):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "nvidia-device-plugin"}, "spec": spec}


WRAPPED = {
    "Flux": helm_object(
        "helm.toolkit.fluxcd.io/v2", "HelmRelease", chart={"spec": {"chart": "nvidia-device-plugin"}}, values=CHART
    ),
    "Flux, by reference": helm_object(
        "helm.toolkit.fluxcd.io/v2", "HelmRelease", chartRef={"name": "nvidia-device-plugin"}, values=CHART
    ),
    "k3s": helm_object(
        "helm.cattle.io/v1",
        "HelmChart",
        chart="https://charts.example/nvidia-device-plugin-0.17.1.tgz",
        valuesContent=yaml.safe_dump(CHART),
    ),
    "k3s, of a packaged chart": helm_object(
        "helm.cattle.io/v1", "HelmChartConfig", valuesContent=yaml.safe_dump(CHART)
    ),
    "Argo CD": helm_object(
        "argoproj.io/v1alpha1",
        "Application",
        source={"chart": "nvidia-device-plugin", "helm": {"valuesObject": CHART}},
    ),
    "Argo CD, as text": helm_object(
        "argoproj.io/v1alpha1",
        "Application",
        sources=[{"path": "deployments/helm/nvidia-device-plugin", "helm": {"values": yaml.safe_dump(CHART)}}],
    ),
    "Argo CD, a set": helm_object(
        "argoproj.io/v1alpha1",
        "ApplicationSet",
        template={"spec": {"source": {"path": "charts/of-ours", "helm": {"valuesObject": CHART}}}},
    ),
    "an umbrella chart": helm_object(
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
        chart={"spec": {"chart": "of-ours"}},
        values={"nvidia-device-plugin": CHART},
    ),
}


@pytest.mark.parametrize("plugin", [None, "nvidia"])
@pytest.mark.parametrize("case", WRAPPED)
def test_values_in_the_object_that_installs_a_chart_are_read(case, plugin):
    """Defect: what clusters keep in Git was refused, whichever plugin was named. The values alone are the measure."""
    found = only(WRAPPED[case], plugin)
    assert found.config == only(CHART, "nvidia").config
    assert found.config["resources"][0]["sharing"] == {"replicas": 4}


def test_values_that_the_object_takes_from_elsewhere_are_told():
    """They may say anything."""
    release = helm_object(
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
        chart={"spec": {"chart": "nvidia-device-plugin"}},
        valuesFrom=[{"kind": "ConfigMap", "name": "x"}],
    )
    found = only(release)
    assert "valuesFrom is left out: write what it sets into the values" in found.notes
    assert not found.serves_the_same


def test_the_default_of_several_configurations_is_printed_where_a_chart_has_one(capsys, tmp_path):
    """Defect: the values of a cluster with `config.default` were refused as ambiguous; the others are named."""
    file = tmp_path / "values.yaml"
    other = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
    values = {"config": {"default": "default", "map": SHARED_BY_FOUR["config"]["map"] | {"big": other}}}
    file.write_text(yaml.safe_dump(values))
    assert main(["config", "import", str(file)]) == 0
    said = capsys.readouterr().out
    assert "# this is the default of 2 configurations; --name prints big" in said
    assert yaml.safe_load(said)["resources"][0]["sharing"] == {"replicas": 4}
    assert main(["config", "import", "--name", "big", str(file)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["resources"][0]["sharing"]["strategy"] == "mps"


@pytest.mark.parametrize(
    "text",
    [
        "version: v1\nindividualGPU: {enabled: true}",
        "version: v1\nflags: {migStrategy: none}\nplugin: {deviceListStrategy: cdi-cri}",
        "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/mps, replicas: 20}]}}",
    ],
    ids=["a fork's section", "plugin beside flags", "sharing of what does not exist"],
)
def test_not_every_default_is_right_after_something_was_left_out_that_may_have_an_effect(text, capsys, tmp_path):
    """Defect: all that a fork shares was left out, and the last line said that no setting is needed."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert main(["config", "import", str(file)]) == 0
    said = capsys.readouterr().out
    assert " is left out: " in said
    assert "No setting needed" not in said


def test_plugin_beside_flags_is_told_where_it_belongs():
    """Defect: such a file was taken for the values of a chart, and refused."""
    found = only("version: v1\nplugin: {deviceListStrategy: cdi-cri}\nflags: {migStrategy: mixed}")
    assert found.config == {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}
    assert found.notes == ["plugin is left out: the plugin does not know it here; its place is `flags.plugin`"]


@pytest.mark.parametrize(
    ("item", "plugin", "said"),
    [
        (
            helm_object("some.example/v1", "NodePolicy"),
            None,
            "NodePolicy is not read",
        ),
        (helm_object("intel.com/v1alpha1", "GpuRecoveryPlan"), "nvidia", "give what its operator makes of it"),
        (helm_object("v1", "Pod", containers=[]), "nvidia", "nothing in it belongs to nvidia"),
        (
            helm_object("helm.toolkit.fluxcd.io/v2", "HelmRelease", chart={"spec": {"chart": "app-template"}}),
            None,
            "the values of the chart app-template are not read",
        ),
    ],
)
def test_what_is_not_read_is_refused_with_a_cure_that_can_work(item, plugin, said):
    """Defect: with --plugin it was advised to name the plugin with --plugin."""
    with pytest.raises(DevherdError) as refused:
        import_text(yaml.safe_dump(item), "the text", plugin)
    assert said in str(refused.value)
    assert "--plugin" not in str(refused.value) or plugin is None
    assert "name its plugin" not in str(refused.value)


BASE_POLICY = {
    "resourceRegistration": "dp",
    "resourceMonitoring": True,
    "useNFDLabeling": False,
    "dp": {
        "plugin": "docker.io/intel/intel-gpu-plugin:0.37.0",
        "byPathMode": "all",
        "denyIDs": ["0x56A0"],
        "logLevel": 4,
    },
}


@pytest.mark.parametrize("is_object", [True, False], ids=["ClusterPolicy", "values"])
def test_the_policy_of_intels_base_operator_becomes_what_that_would_start(is_object):
    """Its object has the name of NVIDIA's, and is not mistaken for it.

    The flags are those of `dpArgs` in internal/controller/deviceplugin_controller.go of intel/gpu-base-operator.
    """
    given = helm_object("intel.com/v1alpha1", "ClusterPolicy", **BASE_POLICY) if is_object else BASE_POLICY
    found = only(given)
    assert found.config == {
        "vendors": {"intel_gpu": {"bypath": "all", "monitoring": "single", "deny_ids": ["0x56a0"]}},
        "health": {"xpumd": "/run/xpumd/intelxpuinfo.sock"},
    }
    assert "useNFDLabeling left out: settings of the operator, and of parts of it beside the plugin" in found.notes


def test_a_policy_of_intels_base_operator_for_dra_starts_no_plugin():
    """And that is said."""
    spec = {"resourceRegistration": "dra", "dra": {"podHealthCheck": True}}
    found = only(helm_object("intel.com/v1alpha1", "ClusterPolicy", **spec))
    assert "resourceRegistration is not dp: the operator starts no plugin, but a DRA driver" in found.notes
    assert not found.serves_the_same
