"""The chart picks nodes, components and rights by vendor, and refuses an option without what it needs."""

import pytest
import yaml
from charts import CHART
from kustomizations import built, of_kind, with_components
from test_helm_chart import KUBERNETES, pod_of, rights_of, runs_on

from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode

NFD = "nfd.k8s-sigs.io/v1alpha1"
NODE = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
FEATURE = "feature.node.kubernetes.io"
GPU_NODE = NODE | {f"{FEATURE}/pci-0302_10de.present": "true"}
AMD_NODE = NODE | {f"{FEATURE}/pci-1200_1002.present": "true"}
RDMA_NODE = NODE | {f"{FEATURE}/rdma.available": "true"}


def pods(manifests):
    """By the name of each DaemonSet its pod."""
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in of_kind("DaemonSet", manifests)}


@pytest.mark.parametrize(
    "case",
    [
        (["nvidia"], {}, ["nvidia"]),
        (["nvidia"], {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}, ["nvidia", "nvidia-mig"]),
        (["nvidia"], {"vendors": {"nvidia": {"device_list_strategy": ["cdi-cri"]}}}, ["nvidia", "nvidia-cdi"]),
        (
            ["nvidia"],
            {"resources": [{"match": {"vendor": "nvidia"}, "sharing": {"strategy": "mps", "replicas": 2}}]},
            ["nvidia", "nvidia-mps"],
        ),
        (["amd"], {}, ["amd", "amd-exporter"]),
        (["intel-gpu", "intel-fpga", "xilinx-fpga", "rdma"], {}, ["xpumd"]),
        (["rdma"], {"vendors": {"rdma": {"mode": "sriov"}}}, ["rdma-sriov"]),
        (["nvidia"], {"vendors": {"nvidia": {"device_discovery_strategy": "nvml"}}}, ["nvidia"]),
    ],
)
def test_a_vendor_brings_the_components_that_it_and_its_options_need(helm, kubectl, tmp_path, case):
    """Those of kustomize, and no other; in a pool as well."""
    vendors, config, components = case
    expected = with_components(kubectl, tmp_path, *components)
    made = helm.manifests({"vendors": vendors, "config": config, "nodes": "all"})
    in_pool = helm.manifests({"config": config, "pools": [{"name": "a", "vendors": vendors}]})
    assert (pod_of(made), rights_of(made)) == (pod_of(expected), rights_of(expected))
    one, other = pod_of(made), pod_of(in_pool)
    assert (one["containers"], one["volumes"]) == (other["containers"], other["volumes"])


@pytest.mark.parametrize(
    ("config", "components", "words"),
    [
        ({"vendors": {"nvidia": {"mig_strategy": "mixed"}}}, ["nvidia"], "vendors.nvidia.mig_strategy is mixed"),
        (
            {"vendors": {"nvidia": {"device_list_strategy": ["cdi-annotations"]}}},
            ["nvidia-cdi"],
            "vendors.nvidia.device_list_strategy has a CDI strategy",
        ),
        (
            {"resources": [{"match": {"vendor": "nvidia"}, "sharing": {"strategy": "mps", "replicas": 2}}]},
            ["nvidia-mps"],
            "resources share by mps",
        ),
        ({"health": {"amd_kfd": True}}, ["amd"], "health.amd_kfd is true"),
        (
            {"vendors": {"nvidia": {"device_discovery_strategy": "nvml"}}},
            ["nvidia"],
            "vendors.nvidia.device_discovery_strategy is nvml",
        ),
        ({"ledger": {"enabled": True}}, ["ledger"], "ledger.enabled is true"),
        ({"resources": [{"pre_start": {"occupied": "wait"}}]}, ["ledger"], "resources.pre_start.occupied is wait"),
        ({"health": {"xpumd": "/run/xpumd/a.sock"}}, ["xpumd"], "health.xpumd is /run/xpumd/a.sock"),
        (
            {"health": {"amd_exporter": "/var/lib/amd-metrics-exporter/a"}},
            ["amd-exporter"],
            "health.amd_exporter is /var/lib/amd-metrics-exporter/a",
        ),
        (
            {"health": {"amd_nic_exporter": "/var/lib/amd-metrics-exporter/b"}},
            ["amd-exporter"],
            "health.amd_nic_exporter is /var/lib/amd-metrics-exporter/b",
        ),
        ({"health": {"kernel_log": {"enabled": True}}}, ["kernel-log"], "health.kernel_log.enabled is true"),
        ({"node_labels": {"write": "node"}}, ["labels-node", "events"], "node_labels.write is node"),
        ({"node_labels": {"write": "feature_file"}}, ["labels-feature-file"], "node_labels.write is feature_file"),
        ({"kubernetes": {"node_condition": True}}, ["node-condition", "events"], "kubernetes.node_condition is true"),
    ],
)
def test_an_option_without_what_it_needs_is_refused_before_anything_is_sent(helm, config, components, words):
    """Wherever it is: at the top, of one pool, in one of several configurations. With it, it is taken."""
    component = components[0]
    expected = rf"config: {words} without the component {component} — .* — add {component} to components"
    for values in (
        {"config": config},
        {"pools": [{"name": "a", "config": config}]},
        {"configs": {"a": {}, "b": config}},
    ):
        with pytest.raises(ValueError, match=expected):
            helm.manifests(values)
    assert helm.manifests({"config": config, "components": components, "nodes": "all"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"config": {"web_config": "/a/web.yaml"}}, "config: web_config is /a/web.yaml without the component web — "),
        (
            {"config": {"health": {"xpumd": "/srv/a.sock"}}, "components": ["xpumd"]},
            "config: health.xpumd is /srv/a.sock, which the pod does not see — the component xpumd mounts /run/xpumd ",
        ),
        (
            {"config": {"health": {"amd_exporter": "/srv/a"}}, "vendors": ["amd"], "nodes": "all"},
            "config: health.amd_exporter is /srv/a, which the pod does not see — the component amd-exporter mounts ",
        ),
        ({"components": ["nvidia-mig"]}, "components: nvidia-mig is without nvidia — "),
        ({"pools": [{"name": "a", "components": ["nvidia-mig"]}]}, "components: nvidia-mig is without nvidia — "),
        ({"configDefault": "a"}, "configDefault: it is set without configs — "),
        ({"configLabel": "a", "pools": [{"name": "a"}]}, "configLabel: it is set without configs — "),
    ],
)
def test_what_would_have_no_effect_for_lack_of_a_component_is_refused(helm, values, words):
    """Also what the component that is there does not reach."""
    with pytest.raises(ValueError, match=words):
        helm.manifests(values)


def test_an_option_that_a_mount_of_ones_own_serves_needs_no_component(helm):
    """A socket, or a file for TLS, wherever it lies."""
    mounts = {
        "extraVolumes": [{"name": "own", "hostPath": {"path": "/srv"}}],
        "extraVolumeMounts": [{"name": "own", "mountPath": "/host/srv"}],
    }
    for config in ({"health": {"xpumd": "/srv/a.sock"}}, {"web_config": "/host/srv/web.yaml"}):
        assert helm.manifests({"config": config} | mounts)
    assert helm.manifests({"config": {"health": {"xpumd": False, "amd_exporter": "auto"}}})


def test_mig_devices_by_procfs_need_no_nvml(helm):
    """NVML is never called then."""
    nvidia = {"mig_strategy": "single", "device_discovery_strategy": "procfs"}
    assert helm.manifests({"config": {"vendors": {"nvidia": nvidia}}})


def test_automatic_pools_are_on_the_nodes_of_their_vendor_and_no_node_is_in_two(helm):
    """By Node Feature Discovery's labels; a node with devices of several has the pool of the one that needs rights.

    Defect: one with NVIDIA's and AMD's had NVIDIA's, without the rights that AMD's need.
    """
    made = pods(helm.manifests({"vendors": "auto", "config": {"log_level": "debug"}}))
    assert list(made) == ["devherd-nvidia-amd", "devherd-nvidia", "devherd-amd", "devherd-intel-gpu", "devherd-other"]
    nodes = {
        "devherd-nvidia-amd": [GPU_NODE | AMD_NODE, GPU_NODE | AMD_NODE | RDMA_NODE],
        "devherd-nvidia": [GPU_NODE, NODE | {"nvidia.com/gpu.present": "true"}, GPU_NODE | RDMA_NODE],
        "devherd-amd": [AMD_NODE, AMD_NODE | RDMA_NODE],
        "devherd-intel-gpu": [NODE | {"intel.feature.node.kubernetes.io/gpu": "true"}],
        "devherd-other": [RDMA_NODE, NODE | {f"{FEATURE}/pci-1200_8086.present": "true"}],
    }
    for name, labelled in nodes.items():
        assert [[each for each, pod in made.items() if runs_on(node, pod)] for node in labelled] == [[name]] * len(
            labelled
        )
    assert [name for name, pod in made.items() if runs_on(NODE, pod)] == []
    by_class = {name for name, pod in made.items() if pod.get("runtimeClassName") == "nvidia"}
    privileged = {name for name, pod in made.items() if pod["containers"][0]["securityContext"]["privileged"]}
    assert by_class == {"devherd-nvidia-amd", "devherd-nvidia"}
    assert privileged == {"devherd-nvidia-amd", "devherd-amd"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vendors": "auto", "pools": [{"name": "a"}]}, "vendors: auto is set with pools or affinity — "),
        ({"vendors": "auto", "nodes": "all"}, "vendors: auto is set with nodes: all — "),
        ({"nodes": "nfd", "pools": [{"name": "a"}]}, "nodes: nfd is set with pools — "),
        ({"nodes": "nfd", "affinity": {"podAffinity": {}}}, "nodes: nfd is set with an affinity — "),
        ({"vendors": ["nvdia"]}, "devherd:\n- at '/vendors/0': value must be one of 'nvidia', 'amd', "),
        ({"vendors": "nvidia"}, "devherd:\n- at '/vendors': got string, want null or array"),
        ({"pools": [{"name": "a", "vendors": "auto"}]}, "at '/pools/0/vendors': got string, want "),
        ({"nodes": "some"}, "at '/nodes': value must be one of '', 'all', 'nfd'"),
    ],
)
def test_values_that_contradict_each_other_are_refused(helm, values, words):
    """With what is wrong and what to do."""
    with pytest.raises(ValueError, match=words):
        helm.manifests(values)


def installed(helm, values, *api_versions):
    """The annotation on the nodes, and whether it is on one without devices, with RDMA, with NVIDIA's, with AMD's."""
    made = helm.manifests(values, options=[f"--api-versions={each}" for each in api_versions])
    [daemon_set] = of_kind("DaemonSet", made)
    pod = daemon_set["spec"]["template"]["spec"]
    on = [runs_on(node, pod) for node in (NODE, RDMA_NODE, GPU_NODE, AMD_NODE)]
    return daemon_set["metadata"]["annotations"]["devherd.io/nodes"], on


EVERYWHERE = ("all", [True, True, True, True])


def test_it_is_on_the_nodes_that_nfd_has_labelled_where_the_cluster_has_nfd(helm):
    """Of the vendors that are named, or of any; on all nodes without NFD, or where no PCI function need be there."""
    labelled = ("nfd", [False, True, True, True])
    assert installed(helm, {}) == EVERYWHERE
    assert installed(helm, {}, NFD) == labelled
    assert installed(helm, {"vendors": ["nvidia"]}, NFD) == ("nfd", [False, False, True, False])
    assert installed(helm, {"nodes": "nfd"}) == labelled
    assert installed(helm, {"nodes": "all"}, NFD) == EVERYWHERE
    simulated = {"simulated": [{"name": "example.com/a", "count": 1}]}
    assert installed(helm, {"config": simulated}, NFD) == EVERYWHERE
    assert installed(helm, {"configs": {"default": simulated}}, NFD) == EVERYWHERE
    assert installed(helm, {"configs": {"default": {}}}, NFD) == labelled


def test_a_pod_that_needs_nvidias_runtime_is_on_nodes_of_nvidias_alone(helm):
    """Whatever other vendors are named: another node could not start it."""
    for values in ({"components": ["nvidia"]}, {"vendors": ["nvidia", "rdma", "amd"]}):
        assert installed(helm, values, NFD) == ("nfd", [False, False, True, False])
        assert installed(helm, values | {"nodes": "nfd"}) == ("nfd", [False, False, True, False])
    by_default = {"vendors": ["nvidia", "rdma"], "nvidia": {"runtimeClassName": ""}, "nodes": "nfd"}
    assert installed(helm, by_default) == ("nfd", [False, True, True, False])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"vendors": ["nvidia"]}, "nvidia is not known — the cluster has neither .* runtime class never starts"),
        ({"components": ["nvidia"]}, "nvidia is not known — the cluster has neither "),
        ({"vendors": ["amd", "rdma"]}, "amd, rdma is not known — the cluster has neither .* with a label of theirs"),
        (
            {"vendors": ["nvidia"], "config": {"simulated": [{"name": "example.com/a", "count": 1}]}},
            "nvidia is not known — generic and simulated devices have no label",
        ),
    ],
)
def test_nodes_of_a_vendor_that_are_neither_said_nor_found_are_asked_for(helm, values, why):
    """Defect: a cluster without NFD got pods with NVIDIA's runtime class on every node, where they never start."""
    words = f"nodes: it is not set, and which nodes have {why}.* — set nodes: all if .* pools for"
    with pytest.raises(ValueError, match=words) as refused:
        helm.manifests(values)
    assert ("vendors: auto" in str(refused.value)) == ("simulated" not in str(refused.value))
    assert installed(helm, values | {"nodes": "all"}) == EVERYWHERE
    assert installed(helm, values | {"nodeSelector": {"gpu": "yes"}}) == ("all", [False] * 4)
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
    assert installed(helm, values | {"affinity": affinity})[0] == "all"
    assert helm.manifests(values | {"pools": [{"name": "a"}]})


def test_the_component_of_nvidias_operator_brings_its_nodes(helm):
    """Those that the operator has labelled."""
    made = helm.manifests({"vendors": ["nvidia"], "components": ["nvidia-operator"]})
    [pod] = pods(made).values()
    labels = {"nvidia.com/gpu.deploy.client": "true"}
    assert [runs_on(node, pod) for node in (NODE, GPU_NODE, NODE | labels)] == [False, False, True]


def test_the_notes_name_what_a_user_sees_where_a_node_lacks_the_runtime(helm):
    """Of pods that have the runtime class, and of no others."""
    for values in ({"vendors": ["nvidia"], "nodes": "all"}, {"pools": [{"name": "a", "components": ["nvidia"]}]}):
        assert "FailedCreatePodSandBox" in helm.notes(values)
    for values in ({}, {"vendors": ["nvidia"], "nodes": "all", "nvidia": {"runtimeClassName": ""}}):
        assert "FailedCreatePodSandBox" not in helm.notes(values)


def test_no_processor_without_an_image_is_let_in_by_a_label(helm):
    """Each of the terms has the processors, too."""
    [pod] = pods(helm.manifests({"nodes": "nfd"})).values()
    assert not runs_on(GPU_NODE | {"kubernetes.io/arch": "s390x"}, pod)


def test_the_notes_say_which_other_plugins_and_nodes_are_in_the_way(helm):
    """Two plugins of one resource displace each other, unless devherd only compares; without NVIDIA no pod starts."""
    others, no_pod = "No other plugin may serve the same resources", "devices of the other vendors alone has no pod"
    assert others in helm.notes({})
    assert others not in helm.notes({"compare": True})
    assert no_pod in helm.notes({"vendors": ["nvidia", "amd"], "nodes": "nfd"})
    by_default = {"vendors": ["nvidia", "amd"], "nvidia": {"runtimeClassName": ""}, "nodes": "nfd"}
    for values in ({"vendors": ["nvidia"], "nodes": "nfd"}, {"vendors": "auto"}, {"nodes": "nfd"}, by_default):
        assert no_pod not in helm.notes(values)


def test_the_notes_say_what_an_installation_does_not_see(helm):
    """Vendor by vendor, and of no component that it has."""
    bare = helm.notes({})
    for component in ("nvidia", "amd", "amd-exporter", "xpumd", "host-network", "kernel-log"):
        assert f"without {component}: " in bare or f"without the component {component}: " in bare
    of_nvidia = helm.notes({"vendors": ["nvidia"], "components": ["kernel-log"], "nodes": "nfd"})
    assert "NVIDIA without nvidia-mig" in of_nvidia
    assert "without the component nvidia:" not in of_nvidia
    assert "kernel-log: " not in of_nvidia
    assert "AMD" not in of_nvidia
    assert "nodes that Node Feature Discovery" in helm.notes({"vendors": "auto"})


def test_a_comparison_is_the_same_pods_that_register_nothing(helm, kubectl, tmp_path):
    """As kustomize makes it; what it mounts for writing otherwise is read-only, and Ready is where nothing differs."""
    made = helm.manifests({"compare": True})
    assert pod_of(made) == pod_of(with_components(kubectl, tmp_path, "compare"))
    [pod] = pods(made).values()
    [container] = pod["containers"]
    assert container["args"] == ["compare", "--every=60"]
    assert container["readinessProbe"]["exec"] == {"command": ["devherd", "compare"]}
    assert not {"startupProbe", "livenessProbe"} & container.keys()
    assert [each["name"] for each in container["volumeMounts"] if not each.get("readOnly")] == []
    options = {"compare": True, "vendors": ["nvidia"], "nodes": "nfd", "extraArgs": ["--resource=nvidia.com/*"]}
    [pod] = pods(helm.manifests(options)).values()
    assert pod["containers"][0]["args"] == ["compare", "--every=60", "--resource=nvidia.com/*"]
    assert pod["runtimeClassName"] == "nvidia"


def test_a_prometheus_without_its_operator_finds_the_pods_by_annotations(helm):
    """By the scheme that the exporter has."""

    def annotations(values):
        [daemon_set] = of_kind("DaemonSet", helm.manifests(values))
        given = daemon_set["spec"]["template"]["metadata"]["annotations"]
        return {key.partition("/")[2]: value for key, value in given.items() if key.startswith("prometheus.io/")}

    expected = {"scrape": "true", "port": "9478", "path": "/metrics", "scheme": "http"}
    assert annotations({}) == {}
    assert annotations({"scrapeAnnotations": True}) == expected
    assert annotations({"scrapeAnnotations": True, "components": ["web"]}) == expected | {"scheme": "https"}


def test_the_comparison_of_kustomize_is_a_daemon_set_of_its_own(kubectl):
    """With an account and a configuration of its own, beside any other; to delete it leaves the namespace alone."""
    manifests = built(kubectl, KUBERNETES / "compare")
    assert sorted((each["kind"], each["metadata"]["name"]) for each in manifests) == [
        ("ConfigMap", next(each["metadata"]["name"] for each in of_kind("ConfigMap", manifests))),
        ("DaemonSet", "devherd-compare"),
        ("ServiceAccount", "devherd-compare"),
    ]
    [daemon_set] = of_kind("DaemonSet", manifests)
    assert daemon_set["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "compare"
    assert daemon_set["spec"]["template"]["spec"]["containers"][0]["args"] == ["compare", "--every=60"]


def test_the_example_of_one_vendor_names_it_and_its_nodes():
    """As a newcomer would: the components follow."""
    example = yaml.safe_load((CHART.parent / "examples/nvidia.yaml").read_text())
    assert (example["vendors"], example["nodes"]) == (["nvidia"], "nfd")


# deviceClassWhitelist and deviceLabelFields of Node Feature Discovery 0.19 (source/pci/pci.go), and its rule for
# rdma.capable (source/custom/static_features.go): a function of Mellanox'.
LABELLED_CLASSES = ("0x03", "0x0b40", "0x12")
MELLANOX = "0x15b3"
NOT_LABELLED = {"xilinx-f1": "AWS has class 0580 for it, which Node Feature Discovery labels on request alone"}


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {"generic", "everything"}))
def test_each_vendors_cards_give_their_node_a_label_by_which_it_is_found(helm, name, tmp_path):
    """As Node Feature Discovery names them by the class and vendor of their PCI functions."""
    SimulatedNode.create(tmp_path / "node", PRESETS[name].spec)
    functions = set()
    for file in (tmp_path / "node/sys/bus/pci/devices").glob("*/class"):
        functions.add((file.read_text().strip(), (file.parent / "vendor").read_text().strip()))
    labels = {f"{FEATURE}/rdma.capable": "true"} if MELLANOX in {vendor for _, vendor in functions} else {}
    for code, vendor in functions:
        if code.startswith(LABELLED_CLASSES):
            labels[f"{FEATURE}/pci-{code[2:6]}_{vendor[2:6]}.present"] = "true"
    made = pods(helm.manifests({"vendors": "auto"}))
    found = [each for each, pod in made.items() if runs_on(NODE | labels, pod)]
    expected = (
        name.partition("-")[0] if name.startswith(("nvidia", "amd")) else "intel-gpu" if "intel" in name else "other"
    )
    assert found == ([] if name in NOT_LABELLED else [f"devherd-{expected}"])
