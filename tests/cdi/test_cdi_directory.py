"""The directory of CDI specs: in place before a device is advertised, and for as long as a pod may need them."""

import json

import pytest
from cdi_runtime import CdiError, Runtime

from devherd.cdi import CdiDirectory

HOOK = {"hooks": [{"hookName": "createRuntime", "path": "/opt/intel/fpga-sw/intel-fpga-crihook"}]}
NAME = "intel.cdi.k8s.io/fpga=dfl-fme.0"
REGION = {NAME: HOOK}
REGION_FILE = "intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"

GPU = "k8s.device-plugin.nvidia.com/gpu"
GPU_FILE = "k8s.device-plugin.nvidia.com-gpu.json"
COMMON = {"mounts": [{"hostPath": "/usr/lib64/libcuda.so.1", "containerPath": "/usr/lib64/libcuda.so.1"}]}


def gpu(number: int, common: dict | None = None) -> dict:
    return {f"{GPU}=GPU-{number}": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}, GPU: common or COMMON}


@pytest.fixture
def host(tmp_path):
    """A host with the nodes of three GPUs."""
    (tmp_path / "dev").mkdir()
    for number in range(3):
        (tmp_path / f"dev/nvidia{number}").touch()
    return tmp_path


@pytest.fixture
def directory(host):
    return host / "cdi"


@pytest.fixture
def start(host, directory):
    """Starts an instance of ours, which knows nothing but the directory."""
    return lambda: CdiDirectory(directory, host)


def publish(specs, *devices, remembered=()):
    specs.want(devices, remembered)
    assert specs.publish() == {}


def files(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_a_spec_has_the_vendor_plugins_file_name_and_says_what_the_device_needs(start, directory):
    """Drop-in: runtimes and people find the file where the vendor's plugin puts it."""
    publish(start(), REGION)

    path = directory / REGION_FILE
    assert json.loads(path.read_text()) == {
        "cdiVersion": "0.3.0",
        "kind": "intel.cdi.k8s.io/fpga",
        "devices": [{"name": "dfl-fme.0", "containerEdits": HOOK}],
    }
    assert path.stat().st_mode & 0o777 == 0o644


def test_devices_of_one_kind_stand_in_one_file_with_what_they_have_in_common(start, directory):
    """As NVIDIA's plugin writes it: a container with two GPUs has each library and each hook once."""
    publish(start(), gpu(10), gpu(9))

    assert files(directory) == [GPU_FILE]
    assert [device["name"] for device in json.loads((directory / GPU_FILE).read_text())["devices"]] == [
        "GPU-9",
        "GPU-10",
        "all",
    ]
    assert Runtime(directory).edits([f"{GPU}=GPU-9", f"{GPU}=GPU-10"]) == {
        **COMMON,
        "deviceNodes": [{"path": "/dev/nvidia9"}, {"path": "/dev/nvidia10"}],
    }


def test_what_the_vendors_plugin_left_behind_is_replaced(start, directory):
    """Two files that name one CDI device make the runtime refuse both: no pod with the device would start."""
    directory.mkdir()
    left = {"cdiVersion": "0.5.0", "kind": GPU, "devices": [{"name": "GPU-0", "containerEdits": {"env": ["OLD=1"]}}]}
    (directory / GPU_FILE).write_text(json.dumps(left))

    publish(start(), gpu(0))

    assert Runtime(directory).names == {f"{GPU}=GPU-0", f"{GPU}=all"}
    assert "env" not in Runtime(directory).edits([f"{GPU}=GPU-0"])


def test_a_second_file_with_the_same_name_is_what_a_runtime_refuses(start, directory):
    """Why the file name matters: the oracle of these tests sees the conflict."""
    publish(start(), gpu(0))
    (directory / "nvidia-gpu.json").write_bytes((directory / GPU_FILE).read_bytes())

    with pytest.raises(CdiError, match="conflict"):
        Runtime(directory).edits([f"{GPU}=GPU-0"])


def test_a_spec_that_someone_removed_or_changed_is_written_again(start, directory):
    """A pod that starts later must find it."""
    specs = start()
    publish(specs, REGION, gpu(0))
    (directory / REGION_FILE).unlink()
    (directory / GPU_FILE).write_text("{}")

    assert specs.publish() == {}

    assert Runtime(directory).names == {NAME, f"{GPU}=GPU-0", f"{GPU}=all"}


def test_a_spec_that_says_what_it_should_is_left_alone(start, directory):
    """Also over a restart: runtimes read the directory again at every change."""
    publish(start(), REGION, gpu(0))
    before = {path: path.stat() for path in directory.iterdir()}

    specs = start()
    publish(specs, REGION, gpu(0))
    assert specs.publish() == {}

    assert {path: path.stat().st_ino for path in directory.iterdir()} == {
        path: status.st_ino for path, status in before.items()
    }


def test_a_spec_follows_the_host(start, directory):
    """G7, N31: the vendors' plugins write once, and a driver update leaves paths in the spec that are no more."""
    specs = start()
    publish(specs, gpu(0))
    newer = {"mounts": [{"hostPath": "/usr/lib64/libcuda.so.2", "containerPath": "/usr/lib64/libcuda.so.2"}]}

    publish(specs, gpu(0, newer))

    assert Runtime(directory).edits([f"{GPU}=GPU-0"])["mounts"] == newer["mounts"]


def test_a_spec_that_cannot_be_written_is_told_with_the_names_concerned(start, directory):
    """The devices must not be handed out: their pods would not start."""
    directory.write_text("in the way")
    specs = start()
    specs.want([REGION, gpu(0)], [])

    failed = specs.publish()

    assert set(failed) == {NAME, GPU, f"{GPU}=GPU-0"}
    assert all(isinstance(error, OSError) for error in failed.values())
    directory.unlink()
    assert specs.publish() == {}
    assert files(directory) == [REGION_FILE, GPU_FILE]


def test_the_spec_of_a_forgotten_device_is_removed(start, directory):
    """Nothing stale is left for runtimes to trip over."""
    specs = start()
    publish(specs, REGION)

    specs.withdraw(REGION)
    publish(specs)

    assert list(directory.iterdir()) == []


def test_a_forgotten_gpu_leaves_the_others_in_the_file(start, directory):
    """One file holds them all."""
    specs = start()
    publish(specs, gpu(0), gpu(1))

    specs.withdraw(gpu(0))
    publish(specs, gpu(1))

    assert Runtime(directory).names == {f"{GPU}=GPU-1", f"{GPU}=all"}
    assert "mounts" in Runtime(directory).edits([f"{GPU}=GPU-1"])


def test_a_device_that_is_gone_keeps_its_name_but_is_not_in_all(start, directory):
    """A pod that holds it may restart its container when it is back; a pod with `all` must not wait for it."""
    specs = start()
    publish(specs, gpu(0), gpu(1))

    publish(specs, gpu(0), remembered=[gpu(1)])

    runtime = Runtime(directory)
    assert runtime.edits([f"{GPU}=GPU-1"])["deviceNodes"] == [{"path": "/dev/nvidia1"}]
    assert runtime.edits([f"{GPU}=all"])["deviceNodes"] == [{"path": "/dev/nvidia0"}]


def test_names_that_the_configuration_no_longer_gives_stay(start, directory):
    """Pods that got them look them up again at each restart of a container, also under the next instance."""
    publish(start(), gpu(0), REGION)

    publish(start())

    assert Runtime(directory).names == {f"{GPU}=GPU-0", f"{GPU}=all", NAME}


def test_what_an_earlier_instance_left_goes_when_its_device_node_is_no_more(start, host, directory):
    """No container could start with it. The run directory may be empty: an update of the DaemonSet."""
    publish(start(), gpu(0), gpu(1))
    (host / "dev/nvidia1").unlink()

    publish(start(), gpu(0))
    assert Runtime(directory).names == {f"{GPU}=GPU-0", f"{GPU}=all"}

    (host / "dev/nvidia0").unlink()
    publish(start())
    assert list(directory.iterdir()) == []


def test_files_of_others_are_never_removed(start, host, directory):
    """Neither what was never ours, nor what the vendor's plugin has written over ours."""
    publish(start(), gpu(0))
    (directory / GPU_FILE).write_text("the vendor's plugin again")
    (directory / "intel.cdi.k8s.io-gpu-card0.yaml").write_text("its own")
    (directory / "k8s.device-plugin.nvidia.com-gds.json").write_text("its own")
    (host / "dev/nvidia0").unlink()

    publish(start())

    assert files(directory) == [
        "intel.cdi.k8s.io-gpu-card0.yaml",
        "k8s.device-plugin.nvidia.com-gds.json",
        "k8s.device-plugin.nvidia.com-gpu.json",
    ]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}', "\xff"])
def test_a_list_of_own_files_that_says_nothing_makes_nothing_ours(start, directory, content):
    """Then nothing is removed, and what is wanted is written all the same."""
    directory.mkdir()
    (directory / ".devherd").write_text(content, encoding="latin-1")

    publish(start(), gpu(0))

    assert f"{GPU}=GPU-0" in Runtime(directory).names


def test_a_name_that_no_runtime_accepts_costs_no_other(start, directory):
    """The ids of MIG devices under old drivers hold slashes."""
    old = {f"{GPU}=MIG-GPU-1/1/0": {"deviceNodes": [{"path": "/dev/nvidia1"}]}}

    publish(start(), gpu(0), old)

    assert Runtime(directory).names == {f"{GPU}=GPU-0", f"{GPU}=all"}


def test_a_device_without_edits_needs_no_spec(start, directory):
    """Most devices are nodes and nothing else."""
    publish(start(), {})

    assert not directory.exists()
