"""The Kubernetes manifests: kubectl builds them, the API's types know every field, devherd understands its part."""

import shutil
from itertools import permutations

import pytest
import yaml
from kustomizations import KUBERNETES, built, by_kind, in_order, is_within, of_kind

from devherd.config.loader import load

PAGE = KUBERNETES.parents[1] / "docs/kubernetes.md"
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
DISTRIBUTIONS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}
POOLS = sorted({path.name for path in (KUBERNETES / "overlays").iterdir()} - DISTRIBUTIONS.keys())
NEEDED_ONCE = ("namespace", "network-policy", "podmonitor", "resource-quota")


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
