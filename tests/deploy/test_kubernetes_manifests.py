"""The Kubernetes manifests: kubectl builds them, the API's types know every field, devherd understands its part."""

import json
import shutil
import subprocess
from operator import itemgetter
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from devherd import config as configuration
from devherd.exporter.gate import OPEN_TO_ALL

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
README = KUBERNETES.parent / "README.md"


@pytest.fixture(scope="module")
def manifests(tool):
    """What `kubectl apply -k` would send, by kind."""
    return built(tool("kubectl"), KUBERNETES)


def built(kubectl, directory):
    """The manifests of a kustomization, by kind."""
    text = subprocess.run([kubectl, "kustomize", directory], check=True, capture_output=True, text=True).stdout
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


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
def through_the_types(tool, tmp_path):
    """`through_the_types(manifest)`: read into the API's own types and written again: what they do not know is dropped.

    kubectl does that for an edit without a server; the edit here is to another image, which is taken back.
    """

    def read_and_write(manifest):
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(manifest))
        written = subprocess.run(
            [tool("kubectl"), "set", "image", "--local", "--output=json", f"--filename={path}", "*=another"],
            capture_output=True,
            text=True,
            check=False,
        )
        if written.returncode != 0:
            raise ValueError(written.stderr)
        result = json.loads(written.stdout)
        containers = manifest["spec"]["template"]["spec"]["containers"]
        result["spec"]["template"]["spec"]["containers"][0]["image"] = containers[0]["image"]
        return result

    return read_and_write


@pytest.fixture
def daemon_set(manifests):
    """A copy of the DaemonSet without maxSurge, which is younger (1.21) than the types of Debian 12's kubectl."""
    copied = json.loads(json.dumps(manifests["DaemonSet"]))
    del copied["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"]
    return copied


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


def test_there_are_never_two_on_a_node(manifests):
    """The end of the old one's stream would disconnect the new one: no surge, and one may go at a time."""
    strategy = manifests["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert (strategy["maxSurge"], strategy["maxUnavailable"]) == (0, 1)


def test_it_runs_on_every_node_before_the_pods_that_need_it(pod):
    """No taint keeps it away, and the scheduler and the kubelet know that the node needs it."""
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]


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
    config = configuration.load({"config": str(tmp_path / "config.yaml")}, environment)
    settings = config.settings()
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: sources[mount["name"]] for mount in container["volumeMounts"]}
    for host in ("/sys", "/dev", "/proc/driver", str(config.cdi_dir)):
        assert mounts[f"{settings.host_root}{host}"] == host
    for kubelets in (settings.plugin_directory, settings.pod_resources_socket.parent):
        assert mounts[str(kubelets)] == str(kubelets)
    assert {str(settings.run_dir), str(settings.lasting_directory)} <= set(mounts)


@pytest.fixture
def patched(tool, tmp_path):
    """`patched("nvidia.yaml")`: the pod with these patches, used as they say."""

    def build(*patches, further=""):
        directory = shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
        with (directory / "kustomization.yaml").open("a") as kustomization:
            kustomization.write(f"patchesStrategicMerge: [{', '.join(patches)}]\n{further}")
        return built(tool("kubectl"), directory)["DaemonSet"]

    return build


def test_the_patch_for_plugins_registry_adds_the_way_and_its_directory_and_nothing_else(patched, pod):
    """The kubelet finds the sockets where it looks for plugins."""
    place = "/var/lib/kubelet/plugins_registry"
    pod["containers"][0]["env"].append({"name": "DEVHERD_REGISTRATION", "value": "plugins_registry"})
    pod["containers"][0]["volumeMounts"].append({"name": "plugins-registry", "mountPath": place})
    pod["volumes"].append({"name": "plugins-registry", "hostPath": {"path": place, "type": "DirectoryOrCreate"}})

    assert in_order(patched("plugins-registry.yaml")["spec"]["template"]["spec"]) == in_order(pod)
    config = configuration.load({}, {"DEVHERD_REGISTRATION": "plugins_registry"})
    assert (config.registration, str(config.settings().plugins_registry)) == ("plugins_registry", place)


def test_the_patch_for_nvml_adds_nvidias_runtime_and_nothing_else(patched, pod):
    """No volume, no right: the runtime brings the library and the nodes."""
    pod["runtimeClassName"] = "nvidia"
    pod["containers"][0]["env"] += [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]

    assert in_order(patched("nvidia.yaml")["spec"]["template"]["spec"]) == in_order(pod)


def test_the_patch_for_mig_adds_the_right_to_monitor_and_nothing_else(patched, pod):
    """M1: as NVIDIA's chart does; and takes away what Kubernetes refuses beside the capability."""
    container = pod["containers"][0]
    container["env"].append({"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"})
    container["securityContext"]["capabilities"] = {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    del container["securityContext"]["allowPrivilegeEscalation"]

    assert in_order(patched("nvidia-mig.yaml")["spec"]["template"]["spec"]) == in_order(pod)


def test_the_patch_for_mps_adds_the_daemons_directory_to_read_and_nothing_else(patched, pod):
    """M4: the directory is the one that NVIDIA's chart and operator use."""
    mount = {"name": "nvidia-mps", "mountPath": "/host/run/nvidia/mps", "readOnly": True}
    pod["containers"][0]["volumeMounts"].append(mount)
    source = {"path": "/run/nvidia/mps", "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "nvidia-mps", "hostPath": source})

    assert in_order(patched("nvidia-mps.yaml")["spec"]["template"]["spec"]) == in_order(pod)


def test_the_patch_for_multus_adds_the_directory_of_device_info_and_nothing_else(patched, pod):
    """It is where devherd writes by default."""
    place = str(
        configuration.Config.model_validate({"vendors": {"rdma": {"mode": "sriov"}}}).vendors.rdma.device_info_dir
    )
    pod["containers"][0]["volumeMounts"].append({"name": "device-info", "mountPath": f"/host{place}"})
    source = {"path": place, "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "device-info", "hostPath": source})

    assert in_order(patched("rdma-sriov.yaml")["spec"]["template"]["spec"]) == in_order(pod)


def test_the_patch_for_nvidia_cdi_adds_directories_to_read_and_nothing_else(patched, pod):
    """Where the driver's files may be; a driver container's are mounted after the pod has started."""
    changed = in_order(patched("nvidia-cdi.yaml")["spec"]["template"]["spec"])
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
    ("patch", "name", "place"),
    [("amd-exporter.yaml", "amd-exporter", "/var/lib/amd-metrics-exporter"), ("xpumd.yaml", "xpumd", "/run/xpumd")],
)
def test_the_patch_for_a_vendors_monitor_adds_the_directory_of_its_socket(patched, pod, patch, name, place):
    """Where devherd looks for it below the host's root; and nothing else."""
    mount = {"name": name, "mountPath": f"/host{place}", "readOnly": True}
    pod["containers"][0]["volumeMounts"].append(mount)
    pod["volumes"].append({"name": name, "hostPath": {"path": place, "type": "DirectoryOrCreate"}})

    assert in_order(patched(patch)["spec"]["template"]["spec"]) == in_order(pod)


def test_events_take_a_token_and_the_rights_to_tell_and_nothing_else(patched, pod):
    """It reads no secret, and changes nothing but, where that is asked for, the node's condition."""
    pod["automountServiceAccountToken"] = True

    assert in_order(patched("events.yaml")["spec"]["template"]["spec"]) == in_order(pod)
    for file, rights in {
        "events-rbac.yaml": {("events", "create"), ("pods", "get")},
        "node-condition-rbac.yaml": {("nodes/status", "patch")},
    }.items():
        role, binding = yaml.safe_load_all((KUBERNETES / file).read_text())
        assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == rights
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "devherd"}]


def test_the_patch_for_tls_adds_its_secrets_and_asks_the_probes_to_use_it(patched, pod, tmp_path):
    """What its comment shows for web.yaml is a web configuration; the probes' paths are open without a password."""
    [container] = pod["containers"]
    container["env"].append({"name": "DEVHERD_WEB_CONFIG", "value": "/etc/devherd-web/web.yaml"})
    container["volumeMounts"].append({"name": "web", "mountPath": "/etc/devherd-web", "readOnly": True})
    secrets = [{"secret": {"name": name}} for name in ("devherd-tls", "devherd-web")]
    pod["volumes"].append({"name": "web", "projected": {"defaultMode": 0o400, "sources": secrets}})
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe]["httpGet"]["scheme"] = "HTTPS"
        assert container[probe]["httpGet"]["path"] in OPEN_TO_ALL

    assert in_order(patched("web.yaml")["spec"]["template"]["spec"]) == in_order(pod)
    lines = (KUBERNETES / "web.yaml").read_text().splitlines()
    example = "\n".join(line[2:] for line in lines if line.startswith(("# tls_server_config", "# basic_auth_users")))
    (tmp_path / "web.yaml").write_text(example.replace("…", "a" * 53))
    web = configuration.load({"web_config": str(tmp_path / "web.yaml")}, {}).web
    assert (web.tls.cert_file.name, list(web.users)) == ("tls.crt", ["prometheus"])


@pytest.mark.parametrize("patch", ["amd.yaml", "kernel-log.yaml"])
def test_the_patches_for_amd_and_the_kernel_log_make_the_container_privileged_and_nothing_else(patched, pod, patch):
    """And take away what Kubernetes refuses beside it."""
    security = pod["containers"][0]["securityContext"]
    security["privileged"] = True
    del security["allowPrivilegeEscalation"]

    assert in_order(patched(patch)["spec"]["template"]["spec"]) == in_order(pod)


def test_the_patch_for_devlink_gives_the_pod_the_hosts_network_and_nothing_else(patched, pod):
    """Where alone the kernel tells of network cards' health reporters."""
    patch = patched("host-network.yaml")["spec"]["template"]["spec"]

    assert patch.pop("hostNetwork") is True
    assert patch.pop("dnsPolicy") == "ClusterFirstWithHostNet"
    for port in patch["containers"][0]["ports"]:
        assert port.pop("hostPort", port["containerPort"]) == port["containerPort"]
    assert in_order(patch) == in_order(pod)


def test_a_second_daemon_set_for_some_nodes_is_told_apart_from_the_first(patched, manifests):
    """As deploy/README.md has it: other names, other pods, other nodes, in one namespace."""
    kustomization = next(block for block in README.read_text().split("```") if "nameSuffix" in block)
    further, _, patches = dedent(kustomization.removeprefix("yaml\n")).partition("patchesStrategicMerge: ")
    first, second = manifests["DaemonSet"], patched(*yaml.safe_load(patches), further=further)

    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["devherd", "devherd-nvidia"]
    assert first["metadata"]["namespace"] == second["metadata"]["namespace"]
    labels = first["spec"]["template"]["metadata"]["labels"]
    assert not second["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert second["spec"]["template"]["spec"]["nodeSelector"] == {"devherd": "nvidia"}


def test_the_first_of_two_daemon_sets_leaves_the_seconds_nodes_alone(patched):
    """Two on one node would take each other's registrations away."""
    pod = patched("nodes-other.yaml")["spec"]["template"]["spec"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "devherd", "operator": "NotIn", "values": ["nvidia"]}]}


def in_order(pod):
    """Kustomize puts what it adds in front."""
    [container] = pod["containers"]
    lists = {key: sorted(container[key], key=itemgetter("name")) for key in ("env", "volumeMounts")}
    return pod | {"containers": [container | lists], "volumes": sorted(pod["volumes"], key=itemgetter("name"))}


def test_the_probes_and_prometheus_ask_where_the_exporter_listens(container, tmp_path):
    """The port of the container, of the probes, of the PodMonitor and of devherd's own setting are one."""
    environment = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    (tmp_path / "config.yaml").write_text("")
    listen = configuration.load({"config": str(tmp_path / "config.yaml")}, environment).listen
    [port] = container["ports"]
    assert listen == f":{port['containerPort']}"
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    monitor = yaml.safe_load((KUBERNETES / "podmonitor.yaml").read_text())
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"]


def test_prometheus_finds_the_pods_and_names_their_node(manifests):
    """The PodMonitor selects the DaemonSet's pods, and gives their series the label that the alert rules go by."""
    monitor = yaml.safe_load((KUBERNETES / "podmonitor.yaml").read_text())["spec"]
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
        config = configuration.load({"config": str(path)}, {})
        assert [device.name for device in config.generic] == ["devic.es/kvm"] * number
