"""The Kubernetes manifests: kubectl builds them, the API's types know every field, devherd understands its part."""

import json
import shutil
import subprocess
from itertools import permutations
from operator import itemgetter

import pytest
import yaml
from kustomizations import KUBERNETES, built, by_kind, of_kind, with_components

from devherd.config.chosen_file import configurations_of
from devherd.config.loader import load
from devherd.config.model import Config
from devherd.exporter.gate import OPEN_TO_ALL

PAGE = KUBERNETES.parents[1] / "docs/kubernetes.md"
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
DISTRIBUTIONS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}
POOLS = sorted({path.name for path in (KUBERNETES / "overlays").iterdir()} - DISTRIBUTIONS.keys())
NEEDED_ONCE = ("namespace", "network-policy", "podmonitor", "resource-quota")


@pytest.fixture(scope="module")
def manifests(kubectl):
    """What `kubectl apply -k deploy/kubernetes` would send, by kind."""
    return by_kind(built(kubectl, KUBERNETES))


@pytest.fixture
def pod(manifests):
    """A copy of the DaemonSet's pod."""
    return json.loads(json.dumps(manifests["DaemonSet"]["spec"]["template"]["spec"]))


@pytest.fixture
def container(pod):
    """The one container of the pod."""
    [container] = pod["containers"]
    return container


@pytest.fixture
def through_the_types(kubectl, tmp_path):
    """`through_the_types(manifest)`: read into the API's own types and written again: what they do not know is dropped.

    kubectl does that for an edit without a server; the edit here is to another image, which is taken back.
    """

    def read_and_write(manifest):
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(manifest))
        written = subprocess.run(
            [*kubectl, "set", "image", "--local", "--output=json", f"--filename={path}", "*=another"],
            capture_output=True,
            text=True,
            check=False,
        )
        if written.returncode != 0:
            raise ValueError(written.stderr)
        result = json.loads(written.stdout)
        pod, shipped = (each["spec"]["template"]["spec"] for each in (result, manifest))
        for kind in ("containers", "initContainers"):
            for container, own in zip(pod.get(kind, []), shipped.get(kind, []), strict=True):
                container["image"] = own["image"]
        return result

    return read_and_write


@pytest.fixture
def daemon_set(manifests):
    """A copy of the DaemonSet."""
    return json.loads(json.dumps(manifests["DaemonSet"]))


def is_within(small, large):
    """Whether everything in `small` is in `large`, which may have defaults besides."""
    if isinstance(small, dict):
        return isinstance(large, dict) and all(key in large and is_within(small[key], large[key]) for key in small)
    if isinstance(small, list):
        return isinstance(large, list) and len(small) == len(large) and all(map(is_within, small, large))
    return small == large


def test_the_kustomization_makes_the_whole_installation(manifests):
    """One command installs it; what needs the Prometheus operator is apart."""
    assert set(manifests) == {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"}
    assert {manifest["metadata"].get("namespace", "devherd") for manifest in manifests.values()} == {"devherd"}


def test_the_daemon_sets_fields_are_those_of_the_api(daemon_set, through_the_types):
    """Kubernetes' own types know every field of it, at its place and with its type."""
    assert is_within(daemon_set, through_the_types(daemon_set))


@pytest.mark.parametrize("mistake", ["priorityClasName", "hostNetworking"])
def test_a_misspelt_field_would_be_found(daemon_set, through_the_types, mistake):
    """The check above is one that can fail."""
    daemon_set["spec"]["template"]["spec"][mistake] = "x"
    assert not is_within(daemon_set, through_the_types(daemon_set))


def test_a_value_of_the_wrong_type_would_be_found(daemon_set, through_the_types):
    """A number where Kubernetes has a text is refused."""
    daemon_set["spec"]["template"]["spec"]["priorityClassName"] = 1
    with pytest.raises(ValueError, match=r"(?i)priorityClassName"):
        through_the_types(daemon_set)


def test_a_new_one_starts_beside_the_old_one_and_takes_over(manifests, container):
    """The old one is ended when the new one is ready, which it is while it stands by."""
    strategy = manifests["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert (strategy["maxSurge"], strategy["maxUnavailable"]) == (1, 0)
    assert {"name": "DEVHERD_TAKE_OVER", "value": "true"} in container["env"]


def test_it_runs_on_every_node_before_the_pods_that_need_it(pod):
    """No taint keeps it away, and the scheduler and the kubelet know that the node needs it."""
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_it_goes_to_no_node_that_has_no_image(pod):
    """With a toleration of everything it would be tried on Windows, on other processors and on virtual nodes."""
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    [term] = node_terms(pod)
    assert term == {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}]}


def node_terms(pod):
    return pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_what_is_mounted_below_the_hosts_file_systems_is_read_only_too_where_that_is_possible(container):
    """The cgroups below /sys, /dev/shm below /dev: `readOnly` alone does not reach them."""
    recursive = {mount["mountPath"]: mount.get("recursiveReadOnly") for mount in container["volumeMounts"]}
    assert {recursive[f"/host/{name}"] for name in ("sys", "dev", "proc/driver")} == {"IfPossible"}


def test_it_has_no_more_rights_than_root_without_capabilities(pod, container):
    """Not privileged, no namespace of the host's, no token for the API server, nothing to write but its volumes."""
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["automountServiceAccountToken"] is False
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"] is True
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/kubelet/device-plugins", "/host/var/run/cdi", "/run/devherd", "/var/lib/devherd"}


def test_every_directory_that_devherd_uses_is_mounted_where_it_looks(pod, container, tmp_path):
    """Its defaults and the environment of the container, taken together, point into the volumes."""
    environment = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    (tmp_path / "config.yaml").write_text("")
    config = load({"config": str(tmp_path / "config.yaml")}, environment)
    settings = config.settings()
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: sources[mount["name"]] for mount in container["volumeMounts"]}
    for host in ("/sys", "/dev", "/proc/driver", str(config.cdi_dir)):
        assert mounts[f"{settings.host_root}{host}"] == host
    for kubelets in (settings.plugin_directory, settings.pod_resources_socket.parent):
        assert mounts[str(kubelets)] == str(kubelets)
    assert {str(settings.run_dir), str(settings.lasting_directory)} <= set(mounts)


@pytest.fixture
def pod_with(kubectl, tmp_path):
    """`pod_with("nvidia")`: the DaemonSet's pod with these components."""

    def build(*components):
        [daemon_set] = of_kind("DaemonSet", with_components(kubectl, tmp_path, *components))
        return daemon_set["spec"]["template"]["spec"]

    return build


def test_the_component_for_plugins_registry_adds_the_way_and_its_directory_and_nothing_else(pod_with, pod):
    """The kubelet finds the sockets where it looks for plugins."""
    place = "/var/lib/kubelet/plugins_registry"
    pod["containers"][0]["env"].append({"name": "DEVHERD_REGISTRATION", "value": "plugins_registry"})
    pod["containers"][0]["volumeMounts"].append({"name": "plugins-registry", "mountPath": place})
    pod["volumes"].append({"name": "plugins-registry", "hostPath": {"path": place, "type": "DirectoryOrCreate"}})

    assert in_order(pod_with("plugins-registry")) == in_order(pod)
    config = load({}, {"DEVHERD_REGISTRATION": "plugins_registry"})
    assert (config.registration, str(config.settings().plugins_registry)) == ("plugins_registry", place)


def test_the_component_for_nvml_adds_nvidias_runtime_and_nothing_else(pod_with, pod):
    """No volume, no right: the runtime brings the library and the nodes, and a restart those of a newer driver."""
    pod["runtimeClassName"] = "nvidia"
    pod["containers"][0]["env"] += [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        {"name": "DEVHERD_RESTART_FOR_DRIVER", "value": "true"},
    ]

    assert in_order(pod_with("nvidia")) == in_order(pod)


def test_the_component_for_mig_adds_the_right_to_monitor_and_nothing_else(pod_with, pod):
    """M1: as NVIDIA's chart does; and takes away what Kubernetes refuses beside the capability."""
    container = pod["containers"][0]
    container["env"].append({"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"})
    container["securityContext"]["capabilities"] = {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    del container["securityContext"]["allowPrivilegeEscalation"]

    assert in_order(pod_with("nvidia-mig")) == in_order(pod)


BY_THE_MANAGERS = {
    "nvidia-operator": ("nvidia.com/gpu.deploy.client", {}),
    "nvidia-operator-old": ("nvidia.com/gpu.deploy.device-plugin", {"app": "nvidia-device-plugin-daemonset"}),
}
"""The label of nodes and those of pods that NVIDIA's driver manager and MIG manager know, by component."""


@pytest.mark.parametrize("component", BY_THE_MANAGERS)
def test_nvidias_managers_can_make_the_pod_leave(kubectl, tmp_path, daemon_set, component):
    """They rewrite the node's label, and wait for pods that have it as a nodeSelector key, or the pod label.

    k8s-driver-manager bd62ca7d (`WaitForPodsWithNodeSelector`, `waitForPodsToTerminate`), mig-parted bd7160f4
    (`waitForPodsToBeDeleted`).
    """
    [changed] = of_kind("DaemonSet", with_components(kubectl, tmp_path, component))
    label, of_pods = BY_THE_MANAGERS[component]
    template, shipped = changed["spec"]["template"], daemon_set["spec"]["template"]
    pod = template["spec"]

    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", label: "true"}
    assert template["metadata"]["labels"] == shipped["metadata"]["labels"] | of_pods
    assert changed["spec"]["selector"] == daemon_set["spec"]["selector"]
    del pod["initContainers"]
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != "nvidia-validations"]
    assert in_order(pod) == in_order(shipped["spec"] | {"nodeSelector": pod["nodeSelector"]})


@pytest.mark.parametrize("component", BY_THE_MANAGERS)
def test_beside_nvidias_operator_the_pod_waits_for_the_driver(kubectl, tmp_path, through_the_types, component):
    """By the file for which the operator's own pods wait, with as few rights as devherd's container has, or fewer.

    gpu-operator a22dbf67, assets/state-device-plugin/0500_daemonset.yaml.
    """
    [changed] = of_kind("DaemonSet", with_components(kubectl, tmp_path, component))
    assert is_within(changed, through_the_types(changed))
    pod = changed["spec"]["template"]["spec"]
    [waiting], [container] = pod["initContainers"], pod["containers"]
    assert waiting["image"] == container["image"]
    assert waiting["securityContext"].items() <= container["securityContext"].items()
    [mount] = waiting["volumeMounts"]
    assert (mount["mountPath"], mount["mountPropagation"]) == ("/run/nvidia/validations", "HostToContainer")
    [volume] = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert volume["hostPath"] == {"path": mount["mountPath"], "type": "DirectoryOrCreate"}

    here = tmp_path / "validations"
    here.mkdir()
    [shell, option, script] = waiting["command"]
    script = script.replace(mount["mountPath"], str(here)).replace("sleep 5", "sleep 0.01")
    with subprocess.Popen([shell, option, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting for NVIDIA driver and container toolkit\n"
        (here / "toolkit-ready").touch()
        assert process.wait(30) == 0


def test_the_component_for_mps_adds_the_daemons_directory_to_read_and_nothing_else(pod_with, pod):
    """M4: the directory is the one that NVIDIA's chart and operator use."""
    mount = {"name": "nvidia-mps", "mountPath": "/host/run/nvidia/mps", "readOnly": True}
    pod["containers"][0]["volumeMounts"].append(mount)
    source = {"path": "/run/nvidia/mps", "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "nvidia-mps", "hostPath": source})

    assert in_order(pod_with("nvidia-mps")) == in_order(pod)


def test_the_component_for_multus_adds_the_directory_of_device_info_and_nothing_else(pod_with, pod):
    """It is where devherd writes by default."""
    place = str(Config.model_validate({"vendors": {"rdma": {"mode": "sriov"}}}).vendors.rdma.device_info_dir)
    pod["containers"][0]["volumeMounts"].append({"name": "device-info", "mountPath": f"/host{place}"})
    source = {"path": place, "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "device-info", "hostPath": source})

    assert in_order(pod_with("rdma-sriov")) == in_order(pod)


def test_the_component_for_nvidia_cdi_adds_directories_to_read_and_nothing_else(pod_with, pod):
    """Where the driver's files may be; a driver container's are mounted after the pod has started."""
    changed = in_order(pod_with("nvidia-cdi"))
    mounts = changed["containers"][0]["volumeMounts"]
    added = [mount for mount in mounts if mount not in pod["containers"][0]["volumeMounts"]]
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in changed["volumes"]}

    assert all(mount["readOnly"] and mount["mountPath"] == f"/host{sources[mount['name']]}" for mount in added)
    assert {mount["mountPath"].removeprefix("/host") for mount in added} == {
        "/usr", "/etc", "/run/udev", "/run/nvidia", "/run/nvidia-persistenced", "/run/nvidia-fabricmanager",
    }  # fmt: skip
    changed["containers"][0]["volumeMounts"] = [mount for mount in mounts if mount not in added]
    changed["volumes"] = [volume for volume in changed["volumes"] if volume in pod["volumes"]]
    assert changed == in_order(pod)


@pytest.mark.parametrize(
    ("component", "place"),
    [("amd-exporter", "/var/lib/amd-metrics-exporter"), ("xpumd", "/run/xpumd")],
)
def test_the_component_for_a_vendors_monitor_adds_the_directory_of_its_socket(pod_with, pod, component, place):
    """Where devherd looks for it below the host's root; and nothing else."""
    mount = {"name": component, "mountPath": f"/host{place}", "readOnly": True}
    pod["containers"][0]["volumeMounts"].append(mount)
    pod["volumes"].append({"name": component, "hostPath": {"path": place, "type": "DirectoryOrCreate"}})

    assert in_order(pod_with(component)) == in_order(pod)


def test_events_take_a_token_and_the_rights_to_tell_and_nothing_else(pod_with, pod):
    """It reads no secret, and changes nothing but, where that is asked for, the node's condition."""
    pod["automountServiceAccountToken"] = True

    assert in_order(pod_with("events")) == in_order(pod)
    for component, rights in {
        "events": {("events", "create", "patch"), ("pods", "get")},
        "node-condition": {("nodes", "get", "watch"), ("nodes/status", "patch")},
    }.items():
        role, binding = yaml.safe_load_all((KUBERNETES / "components" / component / "rbac.yaml").read_text())
        assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == rights
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "devherd"}]


def rights_of(component: str) -> set[tuple[str, ...]]:
    """Kind, resources and verbs of a component's rules, bound to devherd's service account."""
    found = list(yaml.safe_load_all((KUBERNETES / "components" / component / "rbac.yaml").read_text()))
    rights = set()
    for role, binding in zip(found[::2], found[1::2], strict=True):
        assert binding["kind"] == f"{role['kind']}Binding"
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "devherd"}]
        rights |= {(role["kind"], *rule["resources"], *rule["verbs"]) for rule in role["rules"]}
    return rights


def test_labels_by_a_file_need_its_directory_and_no_right(pod_with, pod):
    """Where the configuration's default looks for it below the host's root."""
    place = str(Config().node_labels.feature_file.parent)
    pod["containers"][0]["volumeMounts"].append({"name": "features", "mountPath": f"/host{place}"})
    pod["volumes"].append({"name": "features", "hostPath": {"path": place, "type": "DirectoryOrCreate"}})

    assert in_order(pod_with("labels-feature-file")) == in_order(pod)


def test_labels_by_an_object_need_rights_in_the_namespace_alone(pod_with, pod):
    """And the pod's name, by which its DaemonSet is found."""
    pod["automountServiceAccountToken"] = True
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    pod["containers"][0]["env"].append({"name": "POD_NAME", "valueFrom": source})

    assert in_order(pod_with("labels-node-feature")) == in_order(pod)
    assert rights_of("labels-node-feature") == {
        ("Role", "nodefeatures", "get", "create", "update", "delete"),
        ("Role", "pods", "get"),
    }


def test_labels_on_the_node_need_the_right_to_patch_it(pod_with, pod):
    """A token, and nothing else."""
    pod["automountServiceAccountToken"] = True

    assert in_order(pod_with("labels-node")) == in_order(pod)
    assert rights_of("labels-node") == {("ClusterRole", "nodes", "get", "watch", "patch")}


def test_a_pause_of_gpu_clients_is_seen_by_the_right_to_watch_nodes(pod_with, pod):
    """A token, and nothing else."""
    pod["automountServiceAccountToken"] = True

    assert in_order(pod_with("nvidia-pause")) == in_order(pod)
    assert rights_of("nvidia-pause") == {("ClusterRole", "nodes", "get", "watch")}


def test_a_choice_by_label_needs_the_configurations_and_the_right_to_read_the_label(pod_with, pod):
    """The directory that is mounted is the one that devherd is told of."""
    place = "/etc/devherd-configs"
    pod["automountServiceAccountToken"] = True
    pod["containers"][0]["env"].append({"name": "DEVHERD_CONFIGS", "value": place})
    pod["containers"][0]["volumeMounts"].append({"name": "configs", "mountPath": place, "readOnly": True})
    pod["volumes"].append({"name": "configs", "configMap": {"name": "devherd-configs"}})

    assert in_order(pod_with("config-by-label")) == in_order(pod)
    chosen_from = configurations_of({}, {"DEVHERD_CONFIGS": place})
    assert (str(chosen_from.directory), chosen_from.label) == (place, "nvidia.com/device-plugin.config")
    assert rights_of("config-by-label") == {
        ("ClusterRole", "nodes", "get", "watch"),
        ("ClusterRole", "events", "create", "patch"),
    }


def test_the_component_for_tls_adds_its_secrets_and_asks_the_probes_to_use_it(pod_with, pod, tmp_path):
    """What its comment shows for web.yaml is a web configuration; the probes' paths are open without a password."""
    [container] = pod["containers"]
    container["env"].append({"name": "DEVHERD_WEB_CONFIG", "value": "/etc/devherd-web/web.yaml"})
    container["volumeMounts"].append({"name": "web", "mountPath": "/etc/devherd-web", "readOnly": True})
    secrets = [{"secret": {"name": name}} for name in ("devherd-tls", "devherd-web")]
    pod["volumes"].append({"name": "web", "projected": {"defaultMode": 0o400, "sources": secrets}})
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe]["httpGet"]["scheme"] = "HTTPS"
        assert container[probe]["httpGet"]["path"] in OPEN_TO_ALL

    assert in_order(pod_with("web")) == in_order(pod)
    lines = (KUBERNETES / "components/web/kustomization.yaml").read_text().splitlines()
    example = "\n".join(line[2:] for line in lines if line.startswith(("# tls_server_config", "# basic_auth_users")))
    (tmp_path / "web.yaml").write_text(example.replace("…", "a" * 53))
    web = load({"web_config": str(tmp_path / "web.yaml")}, {}).web
    assert (web.tls.cert_file.name, list(web.users)) == ("tls.crt", ["prometheus"])


@pytest.mark.parametrize("component", ["amd", "kernel-log"])
def test_the_components_for_amd_and_the_kernel_log_make_it_privileged_and_nothing_else(pod_with, pod, component):
    """And take away what Kubernetes refuses beside it."""
    security = pod["containers"][0]["securityContext"]
    security["privileged"] = True
    del security["allowPrivilegeEscalation"]

    assert in_order(pod_with(component)) == in_order(pod)


def test_the_component_for_the_ledger_shows_it_the_processes_of_the_host_and_gives_nothing_else(pod_with, pod):
    """Of what is dropped, two capabilities come back; it stays without privilege escalation."""
    pod["hostPID"] = True
    security = pod["containers"][0]["securityContext"]
    security["appArmorProfile"] = {"type": "Unconfined"}
    security["capabilities"]["add"] = ["SYS_PTRACE", "DAC_READ_SEARCH"]

    assert in_order(pod_with("ledger")) == in_order(pod)


def test_the_component_for_devlink_gives_the_pod_the_hosts_network_and_nothing_else(pod_with, pod):
    """Where alone the kernel tells of network cards' health reporters."""
    patch = pod_with("host-network")

    assert patch.pop("hostNetwork") is True
    assert patch.pop("dnsPolicy") == "ClusterFirstWithHostNet"
    for port in patch["containers"][0]["ports"]:
        assert port.pop("hostPort", port["containerPort"]) == port["containerPort"]
    assert in_order(patch) == in_order(pod)


@pytest.mark.parametrize("others", [(), ("nvidia", "nvidia-operator"), ("nvidia", "nvidia-operator-old")])
def test_hosts_without_selinuxs_type_have_a_component_for_every_container(kubectl, tmp_path, others):
    """Defect: on Bottlerocket and Azure Container Linux no pod started, and only a value of the chart helped."""
    [daemon_set] = of_kind("DaemonSet", with_components(kubectl, tmp_path, "selinux-spc", *others))
    pod = daemon_set["spec"]["template"]["spec"]
    types = [
        each["securityContext"]["seLinuxOptions"]["type"]
        for each in (*pod["containers"], *pod.get("initContainers", []))
    ]
    assert types == ["spc_t"] * (2 if others else 1)


@pytest.fixture(scope="module")
def pools(kubectl):
    """The DaemonSet of each pool in overlays/."""
    return {pool: of_kind("DaemonSet", built(kubectl, KUBERNETES / "overlays" / pool))[0] for pool in POOLS}


def test_each_pools_daemon_set_selects_its_own_pods_alone(pools):
    """Other names, other pods, in one namespace: neither counts, nor adopts, nor is asked about another's pods."""
    for (name, one), (_, other) in permutations(pools.items(), 2):
        selector = one["spec"]["selector"]["matchLabels"]
        assert selector.items() <= one["spec"]["template"]["metadata"]["labels"].items()
        assert not selector.items() <= other["spec"]["template"]["metadata"]["labels"].items()
        assert (one["metadata"]["name"], one["metadata"]["namespace"]) == (f"devherd-{name}", "devherd")


def test_no_node_is_in_two_pools(pools):
    """Two on one node would take each other's registrations away: each has those of its label, one the rest."""
    pods = {name: pool["spec"]["template"]["spec"] for name, pool in pools.items()}
    rest = pods.pop("other")
    assert {name: pod["nodeSelector"]["devherd"] for name, pod in pods.items()} == {name: name for name in pods}
    [term] = node_terms(rest)
    [without] = [each for each in term["matchExpressions"] if each["key"] == "devherd"]
    assert (without["operator"], sorted(without["values"])) == ("NotIn", sorted(pods))
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]} in term["matchExpressions"]


@pytest.mark.parametrize("pool", POOLS)
def test_to_delete_a_pool_leaves_the_namespace_and_the_other_pools_alone(kubectl, pool):
    """Everything that a pool's directory has is named after it; the namespace is apart."""
    manifests = built(kubectl, KUBERNETES / "overlays" / pool)
    assert not of_kind("Namespace", manifests)
    assert {manifest["metadata"]["name"].startswith(f"devherd-{pool}") for manifest in manifests} == {True}
    assert [each["kind"] for each in built(kubectl, KUBERNETES / "namespace")] == ["Namespace"]


@pytest.mark.parametrize(("distribution", "root"), DISTRIBUTIONS.items())
def test_another_kubelet_directory_moves_its_sockets_but_not_that_of_device_plugins(kubectl, pod, distribution, root):
    """Kubernetes has /var/lib/kubelet/device-plugins as a constant (deviceplugin/v1beta1/constants.go)."""
    [volume] = [each for each in pod["volumes"] if each["name"] == "pod-resources"]
    volume["hostPath"]["path"] = f"{root}/pod-resources"

    manifests = by_kind(built(kubectl, KUBERNETES / "overlays" / distribution))

    assert manifests.keys() == {"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"}
    assert in_order(manifests["DaemonSet"]["spec"]["template"]["spec"]) == in_order(pod)


def test_what_is_needed_once_is_for_the_pods_of_all_pools(kubectl, pools):
    """By a label that all have; in their namespace."""
    for directory in NEEDED_ONCE:
        for manifest in built(kubectl, KUBERNETES / directory):
            assert manifest["metadata"].get("namespace", manifest["metadata"]["name"]) == "devherd"
            selector = manifest.get("spec", {}).get("podSelector") or manifest.get("spec", {}).get("selector") or {}
            for pool in pools.values():
                labels = pool["spec"]["template"]["metadata"]["labels"]
                assert selector.get("matchLabels", {}).items() <= labels.items()


def test_the_network_policies_let_prometheus_in_and_the_api_server_out_only_where_that_is_said(manifests):
    """The port is the exporter's, by its name; nothing else comes or goes."""
    of_all, of_api_server = (
        yaml.safe_load((KUBERNETES / "network-policy" / name).read_text())["spec"]
        for name in ("network-policy.yaml", "api-server.yaml")
    )
    [container] = manifests["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    [rule] = of_all["ingress"]
    assert [port["port"] for port in rule["ports"]] == [port["name"] for port in container["ports"]]
    assert (of_all["policyTypes"], of_all["egress"]) == (["Ingress", "Egress"], [])
    assert of_api_server["policyTypes"] == ["Egress"]


def test_the_kustomization_that_the_page_shows_is_one(kubectl, tmp_path):
    """With a configuration and an image of one's own beside the files of deploy/, which stay as they are."""
    [block] = [each for each in PAGE.read_text().split("```") if each.startswith("yaml\n") and "newName" in each]
    shutil.copytree(KUBERNETES, tmp_path / "deploy/kubernetes")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kustomization.yaml").write_text(block.removeprefix("yaml\n"))
    (tmp_path / "mine/config.yaml").write_text("log_level: debug\n")

    manifests = by_kind(built(kubectl, tmp_path / "mine"))

    assert manifests["ConfigMap"]["data"] == {"config.yaml": "log_level: debug\n"}
    pod = manifests["DaemonSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == "registry.example.org/tools/devherd:0.1.0"
    assert container["securityContext"]["privileged"] is True
    assert {"name": manifests["ConfigMap"]["metadata"]["name"]} in [each.get("configMap") for each in pod["volumes"]]


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_goes_with_each_pool(kubectl, tmp_path, component):
    """By the names that its pool gives: also those of rights, and of whom they are for. No word of it is deprecated."""
    overlay = yaml.safe_load((KUBERNETES / "overlays/nvidia/kustomization.yaml").read_text())
    place = shutil.copytree(KUBERNETES, tmp_path / "kubernetes") / "overlays/nvidia"
    overlay["components"].append(f"../../components/{component}")
    (place / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    manifests = built(kubectl, place)

    assert {each["metadata"]["name"].startswith("devherd-") for each in manifests} == {True}
    for binding in of_kind("ClusterRoleBinding", manifests):
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd-nvidia", "namespace": "devherd"}]


def in_order(pod):
    """Kustomize puts what it adds in front."""
    [container] = pod["containers"]
    lists = {key: sorted(container[key], key=itemgetter("name")) for key in ("env", "volumeMounts")}
    return pod | {"containers": [container | lists], "volumes": sorted(pod["volumes"], key=itemgetter("name"))}


def test_the_probes_and_prometheus_ask_where_the_exporter_listens(container, tmp_path):
    """The port of the container, of the probes, of the PodMonitor and of devherd's own setting are one."""
    environment = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    (tmp_path / "config.yaml").write_text("")
    listen = load({"config": str(tmp_path / "config.yaml")}, environment).listen
    [port] = container["ports"]
    assert listen == f":{port['containerPort']}"
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    monitor = yaml.safe_load((KUBERNETES / "podmonitor/podmonitor.yaml").read_text())
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"]


def test_prometheus_finds_the_pods_and_names_their_node(manifests):
    """The PodMonitor selects the DaemonSet's pods, and gives their series the label that the alert rules go by."""
    monitor = yaml.safe_load((KUBERNETES / "podmonitor/podmonitor.yaml").read_text())["spec"]
    labels = manifests["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    [endpoint] = monitor["podMetricsEndpoints"]
    assert "node" in {relabeling["targetLabel"] for relabeling in endpoint["relabelings"]}
    assert endpoint["honorLabels"] is True


def test_devherd_accepts_the_config_map(manifests, tmp_path):
    """The configuration as shipped is valid, and so is its example when the comment marks are taken away."""
    shipped = manifests["ConfigMap"]["data"]["config.yaml"]
    example = shipped.partition("#\n")[2].replace("# ", "")
    for number, text in enumerate((shipped, example)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        config = load({"config": str(path)}, {})
        assert [device.name for device in config.generic] == ["devic.es/kvm"] * number
