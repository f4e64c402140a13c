"""The Helm chart makes of its values what kustomize makes of the same components, and refuses wrong ones."""

import json
import shutil
import subprocess
import tarfile
import tomllib
from operator import itemgetter

import pytest
import yaml
from charts import CHART, EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from kustomizations import KUBERNETES, built, of_kind, with_components

from devherd.config.checks import warnings_of
from devherd.config.chosen_file import configurations_of
from devherd.config.model import Config

ROOT = CHART.parents[2]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
WITH = {"node-condition": ("events",), "nvidia-mig": ("nvidia",)}
"""What a component is refused without."""
BY_VALUE_INSTEAD = {"k0s", "microk8s", "compare", "selinux-spc"}
"""Components whose place the values kubeletDir, compare and securityContext take."""
COMPONENTS = sorted({path.name for path in (KUBERNETES / "components").iterdir()} - BY_VALUE_INSTEAD)


def pod_of(manifests):
    """The pod of the only DaemonSet, without what Helm and kustomize each have of their own."""
    [daemon_set] = of_kind("DaemonSet", manifests)
    pod = daemon_set["spec"]["template"]["spec"]
    [container] = pod["containers"]
    for each in (container, *pod.get("initContainers", [])):
        assert each.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
    for key in ("env", "volumeMounts"):
        container[key].sort(key=itemgetter("name"))
    pod["volumes"].sort(key=itemgetter("name"))
    [config] = [volume for volume in pod["volumes"] if volume["name"] == "config"]
    config["configMap"]["name"] = pod["serviceAccountName"] = "devherd"
    return pod


def rights_of(manifests):
    """Kind and rules of each role, and what each binding binds, but for Events about nodes: where is tested apart."""
    roles = [each for each in manifests if "rules" in each]
    bindings = [each for each in manifests if "roleRef" in each and "node-events" not in each["metadata"]["name"]]
    return (
        sorted((each["kind"], each["metadata"]["name"], json.dumps(each["rules"])) for each in roles),
        sorted((each["kind"], json.dumps(each["roleRef"]), json.dumps(each["subjects"])) for each in bindings),
    )


def policies_of(manifests):
    """What each policy checks, by the name of the one to which its binding belongs; for whom is tested apart."""
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("ValidatingAdmissionPolicy", manifests)}
    bindings = [each["spec"] for each in of_kind("ValidatingAdmissionPolicyBinding", manifests)]
    assert sorted(each["policyName"] for each in bindings) == sorted(policies)
    return {
        name: {key: each for key, each in spec.items() if key != "matchConditions"} for name, spec in policies.items()
    }


@pytest.mark.parametrize(
    "components",
    [
        (),
        *((component, *WITH.get(component, ())) for component in COMPONENTS),
        ("nvidia", "nvidia-mig", "nvidia-cdi", "kernel-log", "events"),
    ],
    ids=lambda components: "+".join(components) or "none",
)
def test_a_pod_of_the_chart_is_that_of_kustomize_with_the_same_components(helm, kubectl, tmp_path, components):
    """Volumes, environment, rights in the container and at the API server, nodes, probes, strategy: all of it."""
    pause = {"kubernetes": {"nvidia_pause": True}} if "nvidia-pause" in components else {}
    by_helm = helm.manifests({"components": list(components), "config": pause, "nodes": "all"})
    by_kustomize = with_components(kubectl, tmp_path, *components)

    assert pod_of(by_helm) == pod_of(by_kustomize)
    assert rights_of(by_helm) == rights_of(by_kustomize)
    assert policies_of(by_helm) == policies_of(by_kustomize)
    [one], [other] = of_kind("DaemonSet", by_helm), of_kind("DaemonSet", by_kustomize)
    assert one["spec"]["updateStrategy"] == other["spec"]["updateStrategy"]


def test_its_pools_are_those_of_the_overlays(helm, kubectl):
    """The same names, components and nodes; those of the rest are told from the others."""
    overlays = {}
    for path in sorted((KUBERNETES / "overlays").iterdir()):
        if path.name not in BY_VALUE_INSTEAD:
            overlays[path.name] = built(kubectl, path)
    pools = [
        {"name": "amd", "components": ["amd", "amd-exporter"]},
        {"name": "nvidia", "components": ["nvidia"]},
        {"name": "other", "rest": True},
    ]

    manifests = helm.manifests({"pools": pools})

    daemon_sets = of_kind("DaemonSet", manifests)
    assert [each["metadata"]["name"] for each in daemon_sets] == [f"devherd-{pool}" for pool in overlays]
    for daemon_set, overlay in zip(daemon_sets, overlays.values(), strict=True):
        assert sorted_values(pod_of([daemon_set])) == sorted_values(pod_of(overlay))


def sorted_values(pod):
    """The nodes of other pools have no order."""
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    for expression in term["matchExpressions"]:
        expression["values"].sort()
    return pod


def test_what_is_there_once_is_as_kustomize_has_it(helm, kubectl):
    """PodMonitor, NetworkPolicy with and without the API server, ResourceQuota."""
    switched_on = {name: {"enabled": True} for name in ("podMonitor", "networkPolicy", "resourceQuota")}
    quiet, asking = helm.by_kind(switched_on), helm.manifests(switched_on | {"components": ["events"]})
    selector = {"app.kubernetes.io/name": "devherd"}
    for directory, key in (("podmonitor", "selector"), ("network-policy", "podSelector"), ("resource-quota", "")):
        [of_kustomize] = built(kubectl, KUBERNETES / directory)
        mine = quiet[of_kustomize["kind"]]
        if key:
            assert mine["spec"][key]["matchLabels"] == selector | {"app.kubernetes.io/instance": "devherd"}
            mine["spec"][key]["matchLabels"] = selector
        assert mine["spec"] == of_kustomize["spec"]
    [policy] = of_kind("NetworkPolicy", asking)
    api_server = yaml.safe_load((KUBERNETES / "network-policy/api-server.yaml").read_text())
    assert policy["spec"]["egress"] == api_server["spec"]["egress"]


def test_alerts_and_dashboard_are_the_projects_own(helm):
    """Each rule, but for those left out, with the address of one's docs; the dashboard to the byte."""
    docs = "https://docs.example.org/d"
    options = {"enabled": True, "docs": f"{docs}/", "without": ["DeviceWarned"]}
    manifests = helm.manifests({"prometheusRule": options, "dashboard": {"enabled": True}})

    text = (ROOT / "deploy/prometheus/rules.yaml").read_text().replace("https://devherd.example/docs", docs)
    rules = yaml.safe_load(text)
    for group in rules["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != "DeviceWarned"]
    [rule] = of_kind("PrometheusRule", manifests)
    assert rule["spec"] == rules
    [dashboard] = [
        each for each in of_kind("ConfigMap", manifests) if "grafana_dashboard" in each["metadata"]["labels"]
    ]
    assert dashboard["data"] == {"devherd.json": (ROOT / "deploy/grafana/devherd.json").read_text()}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_a_good_configuration_of_good_values(helm, example):
    """Helm finds nothing to say, devherd accepts each configuration, and no setting of it is without effect."""
    values = yaml.safe_load(example.read_text())
    helm.lint(values)
    manifests = helm.manifests(values)
    several = values.get("configs", {})
    configurations = [
        each["data"]["config.yaml"] for each in of_kind("ConfigMap", manifests) if "config.yaml" in each["data"]
    ]
    pools = 5 if values.get("vendors") == "auto" else len(values.get("pools", [None]))
    assert len(configurations) == len(of_kind("DaemonSet", manifests)) == pools
    for configuration in (*map(yaml.safe_load, configurations), *several.values()):
        assert list(warnings_of(Config.model_validate(configuration or {}))) == []


def test_every_value_reaches_its_place(helm):
    """Of the image, the pod, its nodes and its container; that of a pool in place of the common one."""
    values = {
        "image": {"repository": "reg/devherd", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "mine"}],
        "serviceAccount": {"name": "account", "annotations": {"a": "b"}},
        "config": {"log_level": "debug", "scan": {"period": "5s"}},
        "components": ["nvidia", "plugins-registry", "web"],
        "nvidia": {"runtimeClassName": ""},
        "web": {"tlsSecret": "tls", "configSecret": "web"},
        "kubeletDir": "/k/",
        "priorityClassName": "high",
        "resources": {"limits": {"memory": "1Gi"}},
        "updateStrategy": {"rollingUpdate": {"maxSurge": "10%"}},
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "commonLabels": {"team": "hardware"},
        "podSecurityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "devherd.json"}},
        "securityContext": {"seLinuxOptions": {"type": "spc_t"}},
        "tolerations": [{"key": "gpu"}],
        "extraArgs": ["--log-level=debug"],
        "extraEnv": [{"name": "LATER", "value": "1"}, {"name": "DEVHERD_LOG_FORMAT", "value": "text"}],
        "extraVolumes": [{"name": "opt", "hostPath": {"path": "/opt"}}],
        "extraVolumeMounts": [{"name": "opt", "mountPath": "/opt"}],
        "pools": [
            {
                "name": "one",
                "nodeSelector": {"g": "h"},
                "config": {"scan": {"period": "7s"}},
                "priorityClassName": "low",
            }
        ],
    }
    manifests = helm.by_kind(values)
    daemon_set, account = manifests["DaemonSet"], manifests["ServiceAccount"]
    template = daemon_set["spec"]["template"]
    pod = template["spec"]
    [container] = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    volumes = {each["name"]: each for each in pod["volumes"]}

    assert container["image"] == f"reg/devherd@sha256:{'0' * 64}"
    assert (container["imagePullPolicy"], pod["imagePullSecrets"]) == ("Always", [{"name": "mine"}])
    assert (account["metadata"]["name"], account["metadata"]["annotations"]) == ("account", {"a": "b"})
    assert (pod["serviceAccountName"], pod["priorityClassName"], pod["tolerations"]) == (
        "account",
        "low",
        [{"key": "gpu"}],
    )
    assert yaml.safe_load(manifests["ConfigMap"]["data"]["config.yaml"]) == {
        "log_level": "debug",
        "scan": {"period": "7s"},
    }
    assert "runtimeClassName" not in pod
    assert [each["secret"]["name"] for each in volumes["web"]["projected"]["sources"]] == ["tls", "web"]
    assert {
        name: volumes[name]["hostPath"]["path"] for name in ("device-plugins", "pod-resources", "plugins-registry")
    } == {
        "device-plugins": "/var/lib/kubelet/device-plugins",
        "pod-resources": "/k/pod-resources",
        "plugins-registry": "/k/plugins_registry",
    }
    assert container["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}}
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": "10%", "maxUnavailable": 0}
    assert (template["metadata"]["annotations"]["c"], template["metadata"]["labels"]["e"]) == ("d", "f")
    assert template["metadata"]["labels"]["team"] == "hardware"
    assert [each["metadata"]["labels"]["team"] for each in manifests.values()] == ["hardware"] * len(manifests)
    assert pod["securityContext"] == values["podSecurityContext"]
    assert (container["securityContext"]["seLinuxOptions"], container["securityContext"]["runAsUser"]) == (
        {"type": "spc_t"},
        0,
    )
    assert container["args"] == ["run", "--log-level=debug"]
    assert (environment["LATER"], environment["DEVHERD_LOG_FORMAT"]) == ("1", "text")
    assert volumes["opt"] == {"name": "opt", "hostPath": {"path": "/opt"}}
    assert container["volumeMounts"][-1] == {"name": "opt", "mountPath": "/opt"}
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "g": "h"}


@pytest.mark.parametrize("component", ["nvidia-operator", "nvidia-operator-old"])
def test_the_security_context_is_that_of_every_container(helm, component):
    """Defect: on a host without SELinux's type the documented value left the init container with it: no pod started."""
    context = {"seLinuxOptions": {"type": "spc_t"}}
    values = {"components": ["nvidia", component], "nodes": "nfd", "securityContext": context}
    pod = helm.by_kind(values)["DaemonSet"]["spec"]["template"]["spec"]
    containers = [*pod["containers"], *pod["initContainers"]]
    assert [each["securityContext"]["seLinuxOptions"] for each in containers] == [{"type": "spc_t"}] * 2
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in containers)


@pytest.mark.parametrize("way", ["left out", "replaced by their text"])
def test_a_chart_whose_symbolic_links_are_lost_says_so(helm, tmp_path, way):
    """Defect: under Flux, and in a checkout on Windows, it ended with "nil pointer evaluating interface {}.template".

    Flux leaves links out: <https://github.com/fluxcd/source-controller/pull/1931>; for git see `core.symlinks`.
    """
    chart = shutil.copytree(CHART, tmp_path / "devherd", symlinks=True)
    links = [path for path in chart.rglob("*") if path.is_symlink()]
    assert len(links) > 30
    for link in links:
        text = str(link.readlink())
        link.unlink()
        if way != "left out":
            link.write_text(text)
    every = {"cleanNodes": True, "podMonitor": {"enabled": True}, "components": ["events", "labels-node"]}
    for values in ({}, {"vendors": ["nvidia"]}, every):
        with pytest.raises(ValueError, match="use the package that `make chart` makes, or deploy/kubernetes"):
            helm.manifests(values, chart=chart)


def test_what_a_pool_has_of_its_own_counts_also_where_it_is_nothing(helm):
    """Zero, false, an empty text and an empty list take the place of the common value; null takes it away."""
    values = {
        "components": ["nvidia"],
        "config": {"vendors": {"amd": {"enabled": True}, "nvidia": {"gdrcopy_enabled": True}}, "log_level": "debug"},
        "tolerations": [{"key": "gpu"}],
        "pools": [
            {
                "name": "a",
                "components": [],
                "config": {"vendors": {"amd": {"enabled": False}}, "log_level": None},
                "tolerations": [],
                "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            },
            {"name": "b", "nvidia": {"runtimeClassName": ""}},
        ],
    }
    manifests = helm.manifests(values)
    one, other = (each["spec"] for each in of_kind("DaemonSet", manifests))
    config = yaml.safe_load(of_kind("ConfigMap", manifests)[0]["data"]["config.yaml"])

    assert config == {"vendors": {"amd": {"enabled": False}, "nvidia": {"gdrcopy_enabled": True}}}
    assert one["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert one["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    names = {each["name"] for each in one["template"]["spec"]["containers"][0]["env"]}
    assert not names & {"NVIDIA_VISIBLE_DEVICES"}
    assert "runtimeClassName" not in other["template"]["spec"]


def test_no_devherd_is_on_a_node_whose_gpu_clients_nvidias_managers_have_paused(helm):
    """Neither the pool's own nor that of the rest, which would hold the driver; before and afterwards the pool's own.

    The words are k8s-driver-manager's (`paused-for-driver-upgrade`, behind another value with `_`) and mig-parted's.
    """
    values = yaml.safe_load((CHART.parent / "examples/nvidia-operator.yaml").read_text())
    pods = [each["spec"]["template"]["spec"] for each in of_kind("DaemonSet", helm.manifests(values))]
    node = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "nvidia.com/gpu.present": "true"}
    on = {
        value: [runs_on(node | {"nvidia.com/gpu.deploy.client": value}, pod) for pod in pods]
        for value in ("true", "paused-for-driver-upgrade", "paused-for-mig-change", "x_paused-for-driver-upgrade")
    }
    assert on.pop("true") == [True, False]
    assert list(on.values()) == [[False, False]] * 3


def test_common_nodes_narrow_each_pool(helm):
    """They are no pool's own: each still has those of its label alone, and the rest are told by those labels."""
    pools = [{"name": "a"}, {"name": "rest", "rest": True}]
    one, rest = (
        each["spec"]["template"]["spec"]
        for each in of_kind("DaemonSet", helm.manifests({"nodeSelector": {"rack": "7"}, "pools": pools}))
    )
    assert one["nodeSelector"] == {"kubernetes.io/os": "linux", "rack": "7", "devherd": "a"}
    assert rest["nodeSelector"] == {"kubernetes.io/os": "linux", "rack": "7"}
    assert not runs_on({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "rack": "7", "devherd": "a"}, rest)


def test_configurations_are_chosen_by_a_label(helm):
    """Each is a file whose name is the label's value; the component that follows the label comes with them."""
    configs = {"default": {}, "mig": {"vendors": {"nvidia": {"gdrcopy_enabled": True}}}}
    values = {"configs": configs, "configLabel": "devherd.io/config", "configDefault": "mig"}
    manifests = helm.manifests(values)

    shipped = {each["metadata"]["name"]: each["data"] for each in of_kind("ConfigMap", manifests)}
    assert {name: yaml.safe_load(text) or {} for name, text in shipped["devherd-configs"].items()} == configs
    [daemon_set] = of_kind("DaemonSet", manifests)
    pod = daemon_set["spec"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    [place] = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "configs"]
    chosen_from = configurations_of({}, environment)
    assert (str(chosen_from.directory), chosen_from.label, chosen_from.default) == (place, "devherd.io/config", "mig")
    assert {"name": "devherd-configs"} in [each.get("configMap") for each in pod["volumes"]]
    roles = [each["metadata"]["name"] for each in of_kind("ClusterRole", manifests)]
    assert roles == ["devherd-config-by-label", "devherd-node-events"]


def test_the_right_to_write_events_about_nodes_is_bound_in_their_namespace_alone(helm):
    """`default`; kustomize, which would move the binding, binds it in all."""
    manifests = helm.manifests({"components": ["config-by-label"]}, namespace="tools")

    [binding] = of_kind("RoleBinding", manifests)
    [role] = [
        each for each in of_kind("ClusterRole", manifests) if each["metadata"]["name"] == "tools-devherd-node-events"
    ]
    assert (binding["metadata"]["name"], binding["metadata"]["namespace"]) == (role["metadata"]["name"], "default")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "tools"}]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]
    bound = {each["roleRef"]["name"] for each in of_kind("ClusterRoleBinding", manifests)}
    assert bound == {"tools-devherd-config-by-label"}


def test_the_policies_of_a_release_are_for_its_account_and_are_left_out_on_request(helm):
    """`rbac.ownNodeOnly: false` is for API servers whose tokens name no node."""
    values = {"components": ["events", "labels-node", "node-condition"]}
    manifests = helm.manifests(values, namespace="tools")
    for policy in of_kind("ValidatingAdmissionPolicy", manifests):
        [condition] = policy["spec"]["matchConditions"]
        assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:tools:devherd'"
    names = [f"tools-devherd-{name}" for name in ("events", "labels", "node-condition")]
    assert sorted(policies_of(manifests)) == names
    assert policies_of(helm.manifests(values | {"rbac": {"ownNodeOnly": False}})) == {}
    assert policies_of(helm.manifests(values | {"rbac": {"create": False}})) == {}


ON_NODES = {"components": ["events", "labels-node"]}


@pytest.mark.parametrize("components", [["events", "labels-node"], ["events", "node-condition"]])
def test_what_is_written_on_nodes_is_taken_back_after_an_uninstallation(helm, kubectl, components):
    """By the Job of deploy/kubernetes/clean-nodes, with its rights, in this release's names."""
    hooks = helm.hooks({"components": components, "imagePullSecrets": [{"name": "mine"}], "image": {"tag": "7"}})
    by_kustomize = [each for each in built(kubectl, KUBERNETES / "clean-nodes") if each["kind"] != "Namespace"]

    assert rights_of(hooks) == rights_of(by_kustomize)
    [job], [other] = of_kind("Job", hooks), of_kind("Job", by_kustomize)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert container["image"] == "registry.example.com/devherd:7"
    assert job["spec"]["template"]["spec"].pop("imagePullSecrets") == [{"name": "mine"}]
    container["image"] = "registry.example.com/devherd:0.1.0"
    assert job["spec"] == other["spec"]
    assert {each["metadata"]["name"] for each in hooks} == {"devherd-clean-nodes"}
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"post-delete"}
    weights = {each["kind"]: int(each["metadata"]["annotations"].get("helm.sh/hook-weight", 0)) for each in hooks}
    assert weights.pop("Job") > max(weights.values())


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"components": ["events", "config-by-label", "labels-node-feature"]},
        ON_NODES | {"cleanNodes": False},
        ON_NODES | {"rbac": {"create": False}},
    ],
)
def test_an_uninstallation_runs_nothing_where_there_is_nothing_to_take_back(helm, values):
    """Or where that is not wanted, or the rights are somebody else's."""
    assert helm.hooks(values) == []


def test_the_objects_of_an_uninstallation_have_names_of_their_own(helm):
    """Of one release in each of two namespaces, and of two in one."""
    places = [
        {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in hooks}
        for hooks in (
            helm.hooks(ON_NODES, namespace="a"),
            helm.hooks(ON_NODES, namespace="b"),
            helm.hooks(ON_NODES, release="gpu", namespace="a"),
        )
    ]
    assert sum(map(len, places)) == len(set().union(*places)) == 12


def test_an_affinity_of_ones_own_leaves_the_processors_as_they_are(helm):
    """In each of its terms; preferences stay, too."""
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
    wish = [{"weight": 1, "preference": terms[0]}]
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}, preferred: wish}}

    pod = helm.by_kind({"affinity": affinity})["DaemonSet"]["spec"]["template"]["spec"]

    processors = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
    assert pod["affinity"]["nodeAffinity"] == {
        required: {
            "nodeSelectorTerms": [{"matchExpressions": [processors, *term["matchExpressions"]]} for term in terms]
        },
        preferred: wish,
    }


LABELS = st.dictionaries(st.sampled_from(("devherd", "gpu", "rack")), st.sampled_from(("a", "b", "c", "d")), max_size=3)
NAMES = st.lists(st.sampled_from(("a", "b", "c", "d")), min_size=1, max_size=4, unique=True)


@given(names=NAMES, has_rest=st.booleans(), nodes=st.lists(LABELS, min_size=4, max_size=8))
@settings(max_examples=15)
def test_no_pool_has_the_pods_or_the_nodes_of_another(helm, names, has_rest, nodes):
    """Whatever the nodes are labelled: at most one DaemonSet on each, exactly one with a pool for the rest."""
    pools = [{"name": name} for name in names] + [{"name": "rest", "rest": True}] * has_rest
    daemon_sets = of_kind("DaemonSet", helm.manifests({"pools": pools}))
    assert len(daemon_sets) == len(pools)
    templates = [each["spec"]["template"] for each in daemon_sets]
    for number, daemon_set in enumerate(daemon_sets):
        selector = daemon_set["spec"]["selector"]["matchLabels"].items()
        selected = [
            other for other, template in enumerate(templates) if selector <= template["metadata"]["labels"].items()
        ]
        assert selected == [number]
    for node in nodes:
        labels = node | {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        on_node = sum(runs_on(labels, template["spec"]) for template in templates)
        assert on_node == 1 if has_rest else on_node <= 1


def runs_on(labels, pod):
    """Whether the scheduler would take a node with these labels: all of the nodeSelector, any of the terms."""
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return pod["nodeSelector"].items() <= labels.items() and any(
        all(
            (labels.get(each["key"]) in each["values"]) == (each["operator"] == "In")
            for each in term["matchExpressions"]
        )
        for term in terms
    )


def test_the_notes_name_the_next_commands(helm):
    """For each pool its label and its roll-out; and that no registry has the image as long as none is named."""
    notes = helm.notes({"pools": [{"name": "gpu"}, {"name": "rest", "rest": True}]})
    for words in (
        "kubectl label node NODE devherd=gpu",
        "kubectl -n devherd rollout status daemonset/devherd-gpu",
        "kubectl -n devherd rollout status daemonset/devherd-rest",
        "WARNING: image.repository is still registry.example.com/devherd",
    ):
        assert words in notes
    assert "devherd=rest" not in notes
    assert "WARNING" not in helm.notes({"image": {"repository": "reg/devherd"}})


def test_the_package_has_files_in_place_of_links_and_makes_the_same(helm, tmp_path):
    """`make chart`: whoever has it needs no checkout."""
    subprocess.run(["make", f"--directory={ROOT}", "chart", f"CHARTS={tmp_path}"], check=True, capture_output=True)
    [package] = tmp_path.iterdir()
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert package.name == f"devherd-{version}.tgz"
    with tarfile.open(package) as archive:
        assert {member.type for member in archive} == {tarfile.REGTYPE}
    values = yaml.safe_load((CHART.parent / "examples/monitored.yaml").read_text())
    assert helm.manifests(values, package) == helm.manifests(values)


def test_chart_image_and_program_are_of_one_version():
    """That of Cargo.toml, which is the wheel's."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    [image] = yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())["images"]
    assert chart["version"] == chart["appVersion"] == image["newTag"] == version


def test_the_chart_has_every_component_by_a_link():
    """A new one needs its link in files/components, and its name in values.schema.json."""
    linked = {str(path.relative_to(CHART / "files/components")): path for path in CHART.glob("files/components/*/*")}
    there = {
        str(path.relative_to(KUBERNETES / "components")): path
        for component in (*COMPONENTS, "compare")
        for path in (KUBERNETES / "components" / component).iterdir()
    }
    assert {name: path.resolve() for name, path in linked.items()} == there
    assert [name for name, path in linked.items() if not path.is_symlink()] == []
    assert sorted(SCHEMA["definitions"]["components"]["items"]["enum"]) == COMPONENTS
