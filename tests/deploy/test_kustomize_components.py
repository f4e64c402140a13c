"""The components of the Kubernetes manifests: each adds what it is for, and nothing else."""

import subprocess

import pytest
import yaml
from kustomizations import KUBERNETES, in_order, is_within, of_kind, with_components

from devherd.config.chosen_file import configurations_of
from devherd.config.loader import load
from devherd.config.model import Config
from devherd.exporter.gate import OPEN_TO_ALL


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
