"""`devherd config import`: each plugin's configuration becomes one that does the same."""

import contextlib
import resource
import subprocess
import sys

import pytest
import yaml
from command_line import devherd
from hypothesis import given
from hypothesis import strategies as st

from devherd.config.model import Config
from devherd.errors import DevherdError, UsageError
from devherd.importers import import_text

NVIDIA = """
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  gdsEnabled: true
  plugin: {deviceListStrategy: "cdi-cri,envvar", deviceIDStrategy: index, passDeviceSpecs: true}
  gfd: {oneshot: true}
imex: {channelIDs: [0], required: true}
"""
NVIDIA_IMPORTED = {
    "vendors": {
        "nvidia": {
            "mig_strategy": "mixed",
            "driver_root": "/run/nvidia/driver",
            "gds_enabled": True,
            "pass_device_specs": True,
            "device_list_strategy": ["cdi-cri", "envvar"],
            "device_id_strategy": "index",
            "imex": {"channel_ids": [0], "required": True},
        }
    }
}
GENERIC = """
domain: squat.ai
devices:
- name: serial
  groups:
  - usb: [{vendor: 0403, product: 7523, serial: A5}]
  - paths: [{path: /dev/ttyUSB*, mountPath: /dev/tty0, permissions: rw}]
- name: fuse
  groups:
  - {count: 10, paths: [{path: /dev/fuse}, {path: /run/x.sock, type: Mount, readOnly: true, limit: 10, optional: true}]}
listen: :8080
log-level: warn
plugin-directory: /var/lib/k0s/kubelet/device-plugins/
"""
DAEMON_SET = """
apiVersion: v1
kind: Namespace
metadata: {name: gpu}
---
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - name: plugin
        image: nvcr.io/nvidia/k8s-device-plugin:v0.17.1
        args: ["--device-list-strategy=cdi-annotations", "--pass-device-specs"]
        env:
        - {name: MIG_STRATEGY, value: single}
        - {name: DEVICE_LIST_STRATEGY, value: envvar}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
"""


def imported(text, plugin=None, *, with_ignored=False):
    """The only configuration that a text becomes, checked."""
    (only,) = import_text(text, "the text", plugin, with_ignored=with_ignored)
    Config.model_validate(only.config)
    return only.config


def test_an_nvidia_file_becomes_vendor_options(tmp_path):
    """As YAML on standard output that `config check` takes, what has no counterpart in comments."""
    path = tmp_path / "nvidia.yaml"
    path.write_text(NVIDIA)

    outcome = devherd("config", "import", path)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert yaml.safe_load(outcome.stdout) == NVIDIA_IMPORTED
    assert "# flags.failOnInitError is left out" in outcome.stdout
    assert "labels are written on request" in outcome.stdout
    (tmp_path / "devherd.yaml").write_text(outcome.stdout)
    assert devherd("config", "check", tmp_path / "devherd.yaml", "--host-root", tmp_path).code == 0


def test_nvidia_names_by_product_and_shares_that_the_plugin_discards_are_rules():
    """`resources`, and `devices` and `rename` of a shared resource (nvidia 5, N27 and N28)."""
    text = """
    resources:
      gpus: [{pattern: "*A100*", name: a100}, {pattern: "*", name: nvidia.com/gpu}]
      mig: [{pattern: "1g.*", name: small}]
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - {name: nvidia.com/gpu, replicas: 4, devices: [0, "1:0", GPU-1]}
        - {name: a100, replicas: 2, rename: half}
    """
    shared = {"replicas": 4, "rename": "nvidia.com/gpu.shared", "fail_requests_greater_than_one": True}
    others = [{"model": "*A100*"}, {"mig_profile": "1g.*"}]
    whole = {"exclude": [{"mig_profile": "*"}]}
    plain = {"vendor": "nvidia", "resource_name": "nvidia.com/gpu", "exclude": others}
    a100 = {"match": {"vendor": "nvidia", "model": "*A100*"} | whole, "name": "nvidia.com/a100"}

    assert imported(text, with_ignored=True)["resources"] == [
        {"match": plain | {"id": ["GPU-1"]}, "sharing": shared},
        {"match": plain | {"mig_index": ["1:0"]}, "sharing": shared},
        {"match": plain | {"index": ["0"]}, "sharing": shared},
        a100 | {"sharing": {"replicas": 2, "rename": "nvidia.com/half", "fail_requests_greater_than_one": True}},
        a100,
        {"match": {"vendor": "nvidia", "mig_profile": "1g.*"}, "name": "nvidia.com/small"},
    ]


def test_mps_sharing_wins_over_time_slicing_as_in_the_plugin():
    """One more request is refused by default, as the plugin does for MPS alone."""
    text = """
    flags: {mpsRoot: /run/nvidia/mps}
    sharing:
      mps: {resources: [{name: nvidia.com/gpu, replicas: 8}]}
      timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}
    """
    config = Config.model_validate(imported(text))

    (rule,) = config.resources
    assert (rule.sharing.strategy, rule.sharing.replicas) == ("mps", 8)
    assert "time" in " ".join(import_text(text, "the text", None)[0].notes)


def test_the_first_so_many_shared_devices_are_those_of_the_lowest_index():
    """`devices: 2` of the plugin's file."""
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3, devices: 2}]}}"

    assert imported(text, with_ignored=True)["resources"] == [
        {
            "match": {"vendor": "nvidia", "resource_name": "nvidia.com/gpu", "index": ["0", "1"]},
            "sharing": {"replicas": 3},
        }
    ]


def test_a_generic_file_keeps_its_groups_and_usb_ids_as_written(tmp_path):
    """0403 is a USB id with its zero, not the number 259."""
    path = tmp_path / "generic.yaml"
    path.write_text(GENERIC)

    outcome = devherd("config", "import", path)

    assert outcome.code == 0
    assert "vendor: 0403" in outcome.stdout
    (tmp_path / "devherd.yaml").write_text(outcome.stdout)
    config = Config.model_validate(imported(GENERIC))
    serial, fuse = config.generic
    assert (serial.name, fuse.name) == ("squat.ai/serial", "squat.ai/fuse")
    assert (serial.groups[0].usb[0].vendor, serial.groups[0].usb[0].product) == ("0403", "7523")
    assert serial.groups[1].paths[0].mount_path == "/dev/tty0"
    assert (fuse.groups[0].count, fuse.groups[0].paths[1].read_only, fuse.groups[0].paths[1].limit) == (10, True, 10)
    assert (config.listen, config.log_level, str(config.kubelet_dir)) == (
        "0.0.0.0:8080",
        "warning",
        "/var/lib/k0s/kubelet",
    )


@pytest.mark.parametrize(
    ("text", "plugin", "config"),
    [
        (
            "intel_fpga_device_plugin -mode region -node-name x -v=2",
            None,
            {"vendors": {"intel_fpga": {"mode": "region"}}},
        ),
        ("-mode=af", "intel-fpga", {}),
        (
            "-shared-dev-num 10 -enable-monitoring -monitoring-mode split -allow-ids 0x56c0,0x56C1 -bypath none",
            None,
            {
                "vendors": {
                    "intel_gpu": {
                        "shared_devices": 10,
                        "bypath": "none",
                        "monitoring": "split",
                        "allow_ids": ["0x56c0", "0x56c1"],
                    }
                }
            },
        ),
        (
            "./k8s-device-plugin -logtostderr=true -v=5 -pulse=30 -resource_naming_strategy=mixed",
            None,
            {"vendors": {"amd": {"naming": "mixed"}}},
        ),
        (
            "intel-gpu-plugin -xpumd-endpoint=/run/xpumd/intelxpuinfo.sock",
            None,
            {"health": {"xpumd": "/run/xpumd/intelxpuinfo.sock"}},
        ),
        ("-driver_type vf-passthrough", None, {"vendors": {"amd": {"driver_type": "vf_passthrough"}}}),
        (
            "[--mig-strategy, mixed, --mps-root=/run/mps]",
            None,
            {"vendors": {"nvidia": {"mig_strategy": "mixed", "mps_root": "/run/mps"}}},
        ),
        (
            "generic-device-plugin --domain x.y --device '{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}'",
            None,
            {"generic": [{"name": "x.y/kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]},
        ),
    ],
)
def test_flags_become_options(text, plugin, config):
    """Of every plugin, with or without the program in front, as words or as a YAML list."""
    assert imported(text, plugin) == config


def test_a_daemon_set_is_read_with_its_arguments_and_variables():
    """A flag is stronger than a variable."""
    assert imported(DAEMON_SET) == {
        "vendors": {
            "nvidia": {
                "mig_strategy": "single",
                "pass_device_specs": True,
                "device_list_strategy": ["cdi-annotations"],
            }
        }
    }


@pytest.mark.parametrize(
    ("image", "plugin", "companions", "vendor"),
    [
        (
            "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            {"command": ["nvidia-device-plugin"], "env": [{"name": "MIG_STRATEGY", "value": "mixed"}]},
            [["config-manager"], ["gpu-feature-discovery"], ["/usr/bin/mps-control-daemon"]],
            {"nvidia": {"mig_strategy": "mixed"}},
        ),
        (
            "docker.io/rocm/k8s-device-plugin:1.31.0.9",
            {"command": ["./k8s-device-plugin"], "args": ["-resource_naming_strategy=mixed", "-logtostderr=true"]},
            [["./k8s-node-labeller", "-vram", "-cu-count"]],
            {"amd": {"naming": "mixed"}},
        ),
        (
            "registry.example/mirror/k8s-device-plugin:1.31.0.9",
            {
                "command": [
                    "sh",
                    "-c",
                    "./k8s-device-plugin -logtostderr=true -pulse=30 -resource_naming_strategy=mixed",
                ]
            },
            [["/bin/bash", "-ec", "exec ./k8s-node-labeller -vram"]],
            {"amd": {"naming": "mixed"}},
        ),
    ],
)
def test_a_rendered_chart_is_read_with_labellers_and_other_companions_of_the_plugin(image, plugin, companions, vendor):
    """They run programs of their own from the plugin's image: they are not second configurations of it."""
    containers = [{"image": image, "command": command} for command in companions] + [{"image": image, **plugin}]
    manifests = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {"spec": {"containers": [container]}}}}
        for container in containers
    ]

    assert imported(yaml.safe_dump_all(manifests)) == {"vendors": vendor}


def device_config(**spec):
    return yaml.safe_dump({"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "spec": spec})


@pytest.mark.parametrize(
    ("driver_type", "arguments", "amd"),
    [
        ("container", {"resource_naming_strategy": "mixed"}, {"naming": "mixed"}),
        ("vf-passthrough", {}, {"naming": "mixed"}),
        ("pf-passthrough", {"resource_naming_strategy": "single", "driver_type": "pf-passthrough"}, None),
    ],
)
def test_the_operators_device_config_is_read_as_the_operator_does(driver_type, arguments, amd):
    """It starts the plugin for virtual machines in naming `mixed`, unless its arguments say otherwise."""
    plugin = {"devicePluginArguments": arguments}
    made = imported(device_config(driver={"driverType": driver_type}, devicePlugin=plugin))
    assert made == {"vendors": {"amd": amd or {"driver_type": "pf_passthrough"}}}


def test_what_of_a_device_config_is_to_be_done_elsewhere_is_told():
    """Where the kubelet is, that the operator would start the plugin again, and which health is lost."""
    plugin = {"kubeletSocketPath": "/data/kubelet/device-plugins", "enableDevicePlugin": True}
    (made,) = import_text(device_config(devicePlugin=plugin), "x", None)
    notes = made.notes
    assert any("`--kubelet-dir /data/kubelet`" in note for note in notes)
    assert any("enableDevicePlugin to false" in note for note in notes)
    assert any("metrics exporter" in note and "component amd-exporter" in note for note in notes)
    (off,) = import_text(device_config(devicePlugin={"enableDevicePlugin": False}), "x", None)
    said = [note for note in off.notes if "enableDevicePlugin" in note]
    assert (off.config, said) == ({}, ["spec.devicePlugin.enableDevicePlugin is false: the operator starts no plugin"])


def test_a_device_config_with_an_argument_that_the_plugin_does_not_know_is_refused():
    """The plugin would end with it."""
    with pytest.raises(UsageError, match="is not a flag of this plugin"):
        imported(device_config(devicePlugin={"devicePluginArguments": {"colour": "red"}}))


def test_mps_is_imported_with_the_root_that_the_plugins_chart_gives_it(tmp_path):
    """The file seldom says it, and without it the configuration would be refused."""
    path = tmp_path / "nvidia.yaml"
    path.write_text("version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}\n")

    outcome = devherd("config", "import", path)

    assert outcome.code == 0
    assert yaml.safe_load(outcome.stdout)["vendors"] == {"nvidia": {"mps_root": "/run/nvidia/mps"}}
    assert "the default of `mps.root` in the plugin's chart" in outcome.stdout
    assert "the MPS control daemon goes with the plugin's DaemonSets" in outcome.stdout
    (tmp_path / "devherd.yaml").write_text(outcome.stdout)
    assert devherd("config", "check", tmp_path / "devherd.yaml", "--host-root", tmp_path).code == 0


def test_of_several_configurations_one_is_printed_or_all_are_written(tmp_path):
    """As NVIDIA's chart has them in a ConfigMap, each for nodes of a label."""
    one = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "version: v1\nflags: {migStrategy: mixed}\n"}}
    two = one | {"data": one["data"] | {"b": "version: v1\nflags: {migStrategy: single}\n"}}
    path = tmp_path / "configmap.yaml"
    path.write_text(yaml.safe_dump(two))

    assert imported(yaml.safe_dump(one)) == {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}
    refused = devherd("config", "import", path)
    printed = devherd("config", "import", path, "--name", "b")
    written = devherd("config", "import", path, "--directory", tmp_path / "configs")
    again = devherd("config", "import", path, "--directory", tmp_path / "configs")

    assert refused.code == 2
    assert "holds 2 configurations — a (nvidia), b (nvidia) — print one with --name" in refused.error_line
    assert yaml.safe_load(printed.stdout) == {"vendors": {"nvidia": {"mig_strategy": "single"}}}
    assert "choose from a, b" in devherd("config", "import", path, "--name", "c").error_line
    assert written.stdout.split() == [str(tmp_path / "configs" / f"{name}.yaml") for name in ("a", "b")]
    assert yaml.safe_load((tmp_path / "configs/a.yaml").read_text()) == {
        "vendors": {"nvidia": {"mig_strategy": "mixed"}}
    }
    assert again.code == 2
    assert "a.yaml — File exists" in again.error_line


def test_a_configuration_that_cannot_be_written_whole_leaves_no_part_of_it(tmp_path):
    """The next import would be refused for it, and a reader would take it for the whole."""
    path = tmp_path / "nvidia.yaml"
    path.write_text("version: v1\nflags: {migStrategy: mixed}\n")

    command = [sys.executable, "-m", "devherd", "config", "import", path, "--directory", tmp_path / "configs"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=at_most_ten_bytes_a_file)

    assert outcome.returncode == 2
    assert "cannot write" in outcome.stderr
    assert ".yaml — File too large — remove it or name another directory" in outcome.stderr
    assert list((tmp_path / "configs").iterdir()) == []


def at_most_ten_bytes_a_file():
    """As a full disk: a part is written, then writes fail."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not recognised as a configuration of another plugin"),
        ("hello: world", "is not recognised as a configuration of another plugin"),
        ("version: v2\nflags: {}", "version v2 is not known"),
        ("a: [", "is not valid YAML"),
        ("intel_gpu_device_plugin -shared-dev-num", "has no value"),
        ("intel_gpu_device_plugin -sharing 3", "`-sharing` is not a flag of this plugin"),
        ("intel_gpu_device_plugin -shared-dev-num many", "vendors.intel_gpu.shared_devices"),
        ("-v 3", "name it with --plugin"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu}]}}",
            "sharing.timeSlicing.resources[0] — `replicas` is missing",
        ),
        ("devices: 3\ndomain: a.b", "not a list"),
        ("devices: [{name: a_b, groups: []}]", "generic[0]"),
        ("sharing: [1]\nversion: v1", "`sharing` is not a section"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}",
            "sharing.timeSlicing.resources[0].replicas — `1`",
        ),
        ("resources: [../../base]\npatches: [{path: add-args.yaml}]", "a kustomization holds no settings"),
        ("-enable-monitoring=yes", "-enable-monitoring is 'yes' — it is neither true nor false"),
        (
            "flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
            "MPS cannot share MIG devices",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_line(tmp_path, text, complaint):
    """What, why and the cure; exit 2."""
    path = tmp_path / "file"
    path.write_text(text)

    outcome = devherd("config", "import", path)

    assert outcome.code == 2
    assert complaint in outcome.error_line


def test_standard_input_is_read():
    """`kubectl get daemonset -o yaml … | devherd config import -`."""
    done = subprocess.run(
        [sys.executable, "-m", "devherd", "config", "import", "-"],
        input="-driver_type container\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert yaml.safe_load(done.stdout) == {"vendors": {"amd": {"driver_type": "container"}}}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 50) | st.sampled_from(["all", "*", "gpu", "v1", "mixed", "0:1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "replicas", "devices", "resources", "timeSlicing", "mps", "gpus", "pattern", "plugin"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["version", "flags", "sharing", "resources", "imex"]), _JSON, min_size=1),
    st.dictionaries(st.sampled_from(["device", "devices", "domain", "listen", "log-level"]), _JSON, min_size=1),
)
def test_no_file_however_odd_is_answered_with_anything_but_a_configuration_or_an_error(nvidia, generic):
    """Values of any kind in any place."""
    for content in (nvidia, generic):
        with contextlib.suppress(DevherdError):
            for one in import_text(yaml.safe_dump(content), "the text", None):
                assert one.plugin in {"nvidia", "generic"}
