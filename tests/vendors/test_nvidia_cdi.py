"""What container runtimes are told of NVIDIA's devices by CDI: nvidia.md 3.4, 3.5, judged as a runtime judges it."""

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from cdi_runtime import Runtime
from nvidia_host import observer, planted, simulated

from devherd.config.resolved import NVML_ANSWER
from devherd.device_plugin.allocation import container_response
from devherd.device_plugin.snapshot import Snapshot
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.entry import DeviceNode, File
from devherd_sim.node.nvidia import DRIVER_VERSION
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import put

CDI = "k8s.device-plugin.nvidia.com"
CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Two GPUs, the second in MIG mode, with NVML."""
    return simulated(tmp_path, gpus=2, nvml=True, mig=[None, ["3g.40gb", "1g.10gb"]])


def started(node: SimulatedNode, **options: Any) -> Observer:
    """Scanned once, with `cdi-cri`."""
    made = observer(node.root, **{"device_list_strategy": ["cdi-cri"], "mig_strategy": "mixed"} | options)
    made.scan(0.0)
    return made


def runtime(node: SimulatedNode) -> Runtime:
    return Runtime(node.root / "var/run/cdi")


def names_of(made: Observer, resource: str = "nvidia.com/gpu") -> list[str]:
    """The CDI names in the answer to a container with all devices of a resource."""
    [one] = [one for one in made.offering.judged(made.policy.verdicts()).offers if one.name == resource]
    response = container_response(Snapshot(one), [device.id for device in one.devices])
    return [device.name for device in response.cdi_devices]


def container(node: SimulatedNode, made: Observer, resource: str = "nvidia.com/gpu") -> dict[str, list]:
    """What the runtime does for such a container."""
    return runtime(node).edits(names_of(made, resource))


def paths(edits: dict[str, list]) -> list[str]:
    return [each["path"] for each in edits["deviceNodes"]]


def test_a_container_with_two_gpus_has_the_driver_once_and_both_gpus(tmp_path: Path):
    """The whole answer of the runtime: variables, nodes, mounts and hooks."""
    node = simulated(tmp_path, gpus=2)
    edits = container(node, started(node))
    mounts = {mount["hostPath"]: mount["options"] for mount in edits["mounts"]}

    assert edits["env"] == [f"NVIDIA_CTK_LIBCUDA_DIR={LIBRARIES}", "NVIDIA_VISIBLE_DEVICES=void"]
    assert paths(edits)[:4] == CONTROL
    assert sorted(paths(edits)[4:]) == [
        "/dev/dri/card0",
        "/dev/dri/card1",
        "/dev/dri/renderD128",
        "/dev/dri/renderD129",
        "/dev/nvidia0",
        "/dev/nvidia1",
    ]
    moved = {mount["hostPath"]: mount["containerPath"] for mount in edits["mounts"]}
    assert {host: inside for host, inside in moved.items() if host != inside} == {
        "/usr/share/vulkan/icd.d/nvidia_icd.json": "/etc/vulkan/icd.d/nvidia_icd.json"
    }
    assert len(mounts) == len(edits["mounts"])
    assert mounts[f"{LIBRARIES}/libcuda.so.{DRIVER_VERSION}"] == ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    assert mounts["/run/nvidia-persistenced/socket"] == ["nosuid", "nodev", "rbind", "rprivate", "noexec"]
    assert {
        f"{LIBRARIES}/vdpau/libvdpau_nvidia.so.{DRIVER_VERSION}",
        f"/usr/lib/firmware/nvidia/{DRIVER_VERSION}/gsp_ga10x.bin",
        "/usr/bin/nvidia-smi",
    } <= mounts.keys()
    assert f"{LIBRARIES}/libcuda.so.1" not in mounts
    assert [hook["args"][2] for hook in edits["hooks"]] == [
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
        "update-application-profile",
        "create-symlinks",
        "create-symlinks",
    ]
    assert {hook["path"] for hook in edits["hooks"]} == {"/usr/bin/nvidia-ctk"}


def test_a_mig_device_is_the_node_of_its_gpu_and_those_of_its_instances(node: SimulatedNode):
    """No graphics: it has none of its own."""
    edits = container(node, started(node), "nvidia.com/mig-1g.10gb")

    own = [path for path in paths(edits) if path not in CONTROL]
    assert own[0] == "/dev/nvidia1"
    assert len(own) == 3
    assert all(path.startswith("/dev/nvidia-caps/nvidia-cap") for path in own[1:])


@pytest.mark.parametrize(("strategy", "names"), [("uuid", None), ("index", ["0", "1:0", "1:1"])])
def test_names_are_those_of_the_id_strategy_and_all_of_them_together(node: SimulatedNode, strategy: str, names: Any):
    """N32: `all` is there too."""
    made = started(node, device_id_strategy=strategy)
    ids = {device.id for one in made.offering.judged(made.policy.verdicts()).offers for device in one.devices}

    assert runtime(node).names == {f"{CDI}/gpu={name}" for name in {*(names or ids), "all"}}
    assert {"/dev/nvidia0", "/dev/nvidia1"} < set(paths(runtime(node).edits([f"{CDI}/gpu=all"])))


def test_annotations_name_what_the_runtime_knows(node: SimulatedNode):
    """`cdi-annotations`: the names are in the values, whatever the keys."""
    made = started(node, device_list_strategy=["cdi-annotations"])
    [resource] = [one for one in made.offering.judged(made.policy.verdicts()).offers if one.name == "nvidia.com/gpu"]
    names = [name for value in resource.devices[0].edits.annotations.values() for name in value.split(",")]

    assert "/dev/nvidia0" in paths(runtime(node).edits(names))
    assert (names_of(made), dict(resource.devices[0].edits.envs)) == ([], {})


def test_without_a_cdi_strategy_nothing_is_written(node: SimulatedNode):
    """No file that nobody asked for."""
    started(node, device_list_strategy=["envvar"], gds_enabled=True)

    assert not (node.root / "var/run/cdi").exists()


def test_what_comes_with_the_gpus_has_a_class_each(node: SimulatedNode):
    """IMEX channels, GPUDirect Storage, InfiniBand and GDRCopy: one file a class, under the peer's names."""
    nodes = ["nvidia-caps-imex-channels/channel3", "nvidia-fs0", "nvidia-fs1", "gdrdrv"]
    nodes += ["infiniband/uverbs0", "infiniband/rdma_cm", "infiniband/umad0"]
    for minor, name in enumerate(nodes):
        put(DeviceNode(f"dev/{name}", "char", 240, minor), node.root)
    put(File("etc/cufile.json", b"{}"), node.root)
    made = started(
        node, gds_enabled=True, mofed_enabled=True, gdrcopy_enabled=True, imex={"channel_ids": [3], "required": True}
    )

    brought = {name: runtime(node).edits([name]) for name in names_of(made)[1:]}

    away = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    assert brought == {
        f"{CDI}/imex-channel=3": {"deviceNodes": [{"path": "/dev/nvidia-caps-imex-channels/channel3"}]},
        f"{CDI}/gdrcopy=all": away | {"deviceNodes": [{"path": "/dev/gdrdrv"}]},
        f"{CDI}/gds=all": away
        | {
            "deviceNodes": [{"path": "/dev/nvidia-fs0"}, {"path": "/dev/nvidia-fs1"}],
            "mounts": [
                {
                    "hostPath": "/etc/cufile.json",
                    "containerPath": "/etc/cufile.json",
                    "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                }
            ],
        },
        f"{CDI}/mofed=all": away
        | {"deviceNodes": [{"path": "/dev/infiniband/rdma_cm"}, {"path": "/dev/infiniband/uverbs0"}]},
    }
    assert sorted(path.name for path in (node.root / "var/run/cdi").glob("*.json")) == [
        f"{CDI}-gdrcopy.json",
        f"{CDI}-gds.json",
        f"{CDI}-gpu.json",
        f"{CDI}-imex-channel.json",
        f"{CDI}-mofed.json",
    ]


def test_a_class_that_would_be_empty_is_left_out_and_told(node: SimulatedNode):
    """N31: the vendor's plugin drops it without a word, and pods then fail on a name that no runtime knows."""
    made = observer(node.root, device_list_strategy=["cdi-cri"], gds_enabled=True, mofed_enabled=True)
    scan = made.scan(0.0)

    assert names_of(made) == [
        f"{CDI}/gpu={one.id}" for one in made.offering.judged(made.policy.verdicts()).offers[0].devices
    ]
    no_gds, no_mofed = sorted(problem.error for problem in scan.problems)
    assert no_gds == "containers get no gds: /dev/nvidia-fs* does not exist: load the kernel module nvidia-fs"
    assert no_mofed.startswith("containers get no mofed: neither /dev/infiniband/uverbs* nor rdma_cm exists: load")


def test_a_driver_root_is_where_things_are_on_the_host_and_not_in_the_container(tmp_path: Path):
    """As the GPU operator installs it; the nodes are there too."""
    node = simulated(tmp_path, gpus=1)
    root = node.root / "run/nvidia/driver"
    for path in (f"usr/lib64/libcuda.so.{DRIVER_VERSION}", "usr/bin/nvidia-smi"):
        put(File(f"run/nvidia/driver/{path}", b""), node.root)
    for minor, name in ((0, "nvidia0"), (255, "nvidiactl")):
        put(DeviceNode(f"run/nvidia/driver/dev/{name}", "char", 195, minor), node.root)
    assert root.is_dir()

    edits = container(node, started(node, driver_root="/run/nvidia/driver", cdi_hook_path="/usr/bin/nvidia-cdi-hook"))

    assert {mount["hostPath"]: mount["containerPath"] for mount in edits["mounts"]} == {
        f"/run/nvidia/driver/usr/lib64/libcuda.so.{DRIVER_VERSION}": f"/usr/lib64/libcuda.so.{DRIVER_VERSION}",
        "/run/nvidia/driver/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    }
    assert edits["deviceNodes"][0] == {"path": "/dev/nvidiactl", "hostPath": "/run/nvidia/driver/dev/nvidiactl"}
    assert edits["hooks"][0]["args"][:2] == ["nvidia-cdi-hook", "create-symlinks"]


def test_an_absolute_link_in_a_driver_root_is_followed_there(tmp_path: Path):
    """As Debian's alternatives make them: on the host, the link would lead out of the driver root, and to nothing."""
    node = simulated(tmp_path, gpus=1)
    root = "run/nvidia/driver"
    put(File(f"{root}/usr/lib64/libcuda.so.{DRIVER_VERSION}", b""), node.root)
    put(File(f"{root}/usr/lib/nvidia/nvidia_icd.json", b""), node.root)
    (node.root / root / "etc/vulkan/icd.d").mkdir(parents=True)
    (node.root / root / "etc/vulkan/icd.d/nvidia_icd.json").symlink_to("/usr/lib/nvidia/nvidia_icd.json")

    mounts = container(node, started(node, driver_root=f"/{root}"))["mounts"]

    assert {mount["hostPath"]: mount["containerPath"] for mount in mounts}[
        f"/{root}/usr/lib/nvidia/nvidia_icd.json"
    ] == "/etc/vulkan/icd.d/nvidia_icd.json"


@pytest.mark.parametrize("root", ["/run/opengl-driver", "/usr/local/glibc/usr", "/opt/nvidia"])
def test_libraries_in_the_lib_of_a_driver_root_are_given(tmp_path: Path, root: str):
    """Defect: NixOS, Talos before 1.13 and installations below /opt had none, whatever was named.

    NixOS links each file to its store: https://github.com/NixOS/nixpkgs/issues/288037. Talos has them in
    /usr/local/glibc/usr/lib: https://github.com/NVIDIA/nvidia-container-toolkit/pull/1621.
    """
    node = simulated(tmp_path, gpus=1)
    library = f"libcuda.so.{DRIVER_VERSION}"
    put(File(f"nix/store/abc-nvidia/lib/{library}", b"\x7fELF\x02\x01\x01\x00"), node.root)
    lib = node.root / root.lstrip("/") / "lib"
    lib.mkdir(parents=True)
    (lib / library).symlink_to(f"/nix/store/abc-nvidia/lib/{library}")
    (lib / "libcuda.so.1").symlink_to(library)

    edits = container(node, started(node, driver_root=root))

    assert {mount["hostPath"]: mount["containerPath"] for mount in edits["mounts"]} == {
        f"{root}/lib/{library}": f"/lib/{library}"
    }
    asked = [argument for hook in edits["hooks"] for argument in hook["args"]]
    assert f"{library}::/lib/libcuda.so.1" in asked
    assert asked[asked.index("--folder") + 1] == "/lib"


def test_libraries_that_are_not_found_are_told(node: SimulatedNode):
    """The specs are written all the same: nodes alone serve programs that bring their own libraries."""
    made = observer(node.root, device_list_strategy=["cdi-cri"], driver_root="/nowhere")
    scan = made.scan(0.0)

    [problem] = scan.problems
    assert (problem.path, f"no libraries of driver {DRIVER_VERSION} are found here" in problem.error) == (
        "/nowhere",
        True,
    )
    assert "such as /run/opengl-driver of NixOS" in problem.error
    assert "mounts" not in container(node, made)


def test_a_link_of_the_driver_that_leads_nowhere_is_left_out_and_told(tmp_path: Path):
    """Defect: a runtime that cannot mount one file starts no container. Removed packages leave such."""
    node = simulated(tmp_path, gpus=1)
    library = f"{LIBRARIES}/libnvidia-gone.so.{DRIVER_VERSION}"
    firmware = f"/usr/lib/firmware/nvidia/{DRIVER_VERSION}/gsp_gone.bin"
    for path in (library, firmware):
        (node.root / path[1:]).symlink_to("/nowhere")

    made = observer(node.root, device_list_strategy=["cdi-cri"])
    [problem] = made.scan(0.0).problems
    mounts = [mount["hostPath"] for mount in container(node, made)["mounts"]]

    assert not {library, firmware} & set(mounts)
    assert f"{LIBRARIES}/libcuda.so.{DRIVER_VERSION}" in mounts
    assert f"these links lead nowhere, and no container gets them: {library}; install the driver" in problem.error


@pytest.mark.parametrize("version", ["470.57.02", "535.129.03"])
def test_old_drivers_are_tolerated(tmp_path: Path, version: str):
    """N32: the vendor's plugin crashes with drivers older than 570."""
    node = simulated(tmp_path, gpus=1)
    put(
        File.line("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}"), node.root
    )
    put(File(f"usr/lib64/libcuda.so.{version}", b""), node.root)

    edits = container(node, started(node))

    assert edits["mounts"][0]["hostPath"] == f"/usr/lib64/libcuda.so.{version}"
    assert f"--host-driver-version={version}" in edits["hooks"][1]["args"]


def test_graphics_and_opencl_find_the_driver_by_the_files_that_their_loaders_read(tmp_path: Path):
    """M2: EGL, Vulkan, OpenCL and OptiX, each where its loader looks in a container; and the X server's modules."""
    node = simulated(tmp_path, gpus=1)
    put(File(f"{LIBRARIES[1:]}/nvidia/xorg/nvidia_drv.so", b""), node.root)

    mounts = {mount["containerPath"]: mount["hostPath"] for mount in container(node, started(node))["mounts"]}

    assert mounts["/etc/vulkan/icd.d/nvidia_icd.json"] == "/usr/share/vulkan/icd.d/nvidia_icd.json"
    same = {
        "/etc/OpenCL/vendors/nvidia.icd",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/nvidia/nvoptix.bin",
        f"{LIBRARIES}/nvidia/xorg/nvidia_drv.so",
    }
    assert {path for path in same if mounts.get(path) == path} == same


def test_libraries_are_linked_as_on_the_host(tmp_path: Path):
    """S7: by the names that programs load, also where no ldconfig runs."""
    node = simulated(tmp_path, gpus=1)
    edits = container(node, started(node))

    assert f"libcuda.so.{DRIVER_VERSION}::{LIBRARIES}/libcuda.so.1" in edits["hooks"][0]["args"]
    assert edits["hooks"][0]["args"].count(f"libcuda.so.1::{LIBRARIES}/libcuda.so") == 1


def test_libraries_that_only_the_dynamic_linker_knows_are_found(tmp_path: Path):
    """M12: in a directory of the host's own, named by /etc/ld.so.cache."""
    node = simulated(tmp_path, gpus=1)
    shutil.rmtree(node.root / LIBRARIES[1:])
    put(File(f"opt/driver/libcuda.so.{DRIVER_VERSION}", b""), node.root)
    put(File("etc/ld.so.cache", ld_cache("/opt/driver/libcuda.so.1")), node.root)

    made = observer(node.root, device_list_strategy=["cdi-cri"])

    assert made.scan(0.0).problems == []
    assert container(node, made)["mounts"][0]["hostPath"] == f"/opt/driver/libcuda.so.{DRIVER_VERSION}"


def ld_cache(path: str) -> bytes:
    """A dynamic linker's cache of one library for this machine's architecture; glibc, sysdeps/generic/dl-cache.h."""
    head, entry = struct.Struct("=17s3sII20x"), struct.Struct("=IIIIQ")
    texts = f"{path}\0{path.rpartition('/')[2]}\0".encode()
    value = head.size + entry.size
    library = entry.pack(0x0303, value + len(path) + 1, value, 0, 0)
    return head.pack(b"glibc-ld.so.cache", b"1.1", 1, len(texts)) + library + texts


def test_graphics_nodes_that_dev_does_not_have_are_not_named(tmp_path: Path):
    """M3: a node of kind shows the host's sysfs; a runtime that finds no such node starts no container."""
    node = simulated(tmp_path, gpus=1)
    shutil.rmtree(node.root / "dev/dri")

    edits = container(node, started(node))

    assert paths(edits) == [*CONTROL, "/dev/nvidia0"]
    assert "by-path" not in str(edits["hooks"])


def test_a_node_for_a_group_keeps_it_and_the_containers_processes_are_of_it(tmp_path: Path):
    """M3: `video` and `render`, where these nodes are not for everybody."""
    node = simulated(tmp_path, gpus=1)
    group = 44 if os.geteuid() == 0 else os.getegid()
    render = node.root / "dev/dri/renderD128"
    os.chown(render, -1, group)
    render.chmod(0o660)

    edits = container(node, started(node))

    nodes = {each["path"]: each for each in edits["deviceNodes"]}
    assert nodes["/dev/dri/renderD128"] == {"path": "/dev/dri/renderD128", "gid": group, "fileMode": 0o660}
    assert nodes["/dev/nvidia0"] == {"path": "/dev/nvidia0"}
    assert edits["additionalGids"] == [group]


def test_a_mig_device_with_graphics_has_the_gpus_graphics_nodes(tmp_path: Path):
    """M3: profile `+gfx`, and no other."""
    node = simulated(tmp_path, gpus=1, nvml=True, mig=[["3g.40gb", "1g.10gb"]])
    answer = node.root / NVML_ANSWER
    facts = json.loads(answer.read_text())
    facts["facts"]["gpus"][0]["mig_devices"][0]["profile_suffixes"] = ["+gfx"]
    answer.write_text(json.dumps(facts))
    made = started(node)

    assert "/dev/dri/renderD128" in paths(container(node, made, "nvidia.com/mig-3g.40gb.gfx"))
    assert "/dev/dri/renderD128" not in paths(container(node, made, "nvidia.com/mig-1g.10gb"))


def test_a_missing_hook_program_is_told(node: SimulatedNode):
    """Every container would fail to start: `fork/exec /usr/bin/nvidia-ctk: no such file or directory`."""
    (node.root / "usr/bin/nvidia-ctk").unlink()

    [problem] = observer(node.root, device_list_strategy=["cdi-cri"]).scan(0.0).problems
    assert problem.path == "/usr/bin/nvidia-ctk"
    assert "which CDI hooks run, is not here: no container with a GPU can start; install" in problem.error
    assert observer(node.root, device_list_strategy=["envvar"]).scan(0.0).problems == []


def test_the_hosts_own_mps_daemon_is_not_joined_by_every_container(tmp_path: Path):
    """M9: CUDA looks for a daemon in /tmp/nvidia-mps by default."""
    node = simulated(tmp_path, gpus=1)
    put(File("tmp/nvidia-mps/control", b""), node.root)

    assert "nvidia-mps" not in str(container(node, started(node))["mounts"])


def test_a_driver_update_is_followed(tmp_path: Path):
    """N31: the vendor's plugin writes at its start only. The new libraries are there before the new module is."""
    node = simulated(tmp_path, gpus=1)
    made = started(node)
    put(File(f"{LIBRARIES[1:]}/libcuda.so.595.1", b""), node.root)
    made.scan(1.0)
    assert f"{LIBRARIES}/libcuda.so.{DRIVER_VERSION}" in str(container(node, made))

    node.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.1  Release")
    made.scan(2.0)

    told = str(container(node, made)["mounts"])
    assert f"{LIBRARIES}/libcuda.so.595.1" in told
    assert DRIVER_VERSION not in told


def test_a_gpu_that_is_forgotten_takes_its_name_along(tmp_path: Path):
    """Until then the name stays: a pod that holds it may restart its container when the GPU is back."""
    node = simulated(tmp_path, gpus=2)
    made = started(node)
    gone, stays = names_of(made)
    [address, _] = node.nvidia.addresses()
    vanish(node, address)

    made.scan(1.0)
    before = runtime(node).names
    made.scan(1000.0)

    left = runtime(node).names
    assert {gone, stays} < before
    assert len(left) == 2
    assert len(before) == 3


def vanish(node: SimulatedNode, address: str) -> None:
    """Take a GPU out of the machine."""
    faults.inject(node, "unbind", address)
    (node.root / "sys/bus/pci/devices" / address).unlink()


def host(root: Path, tree: str) -> Observer:
    """A host as text, looked at with `cdi-cri`."""
    made = observer(planted(root, tree), device_list_strategy=["cdi-cri"])
    made.scan(0.0)
    return made


LISTS = "/etc/nvidia-container-runtime/host-files-for-container.d"
TEGRA = """\
usr/bin/nvidia-ctk ==
etc/nv_tegra_release = # R36 (release), REVISION: 4.0
dev/nvgpu/igpu0/ctrl char 507:1
usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1 ==
usr/lib/aarch64-linux-gnu/nvidia/libcuda.so -> libcuda.so.1.1
"""


def test_a_tegra_board_gives_what_its_lists_name(tmp_path: Path):
    """Lists of devices, libraries, directories and links, of which what is not there is left out."""
    lists = {
        "devices.csv": "dev, /dev/nvgpu/igpu0/ctrl\ndev, /dev/nvmap\n",
        "drivers.csv": "lib, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1\n"
        "sym, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so\n",
    }
    planted(tmp_path, [File(f"{LISTS[1:]}/{name}", text.encode()) for name, text in lists.items()])

    made = host(tmp_path, TEGRA)
    edits = Runtime(tmp_path / "var/run/cdi").edits(names_of(made))

    assert names_of(made) == [f"{CDI}/gpu=tegra"]
    assert paths(edits) == ["/dev/nvgpu/igpu0/ctrl"]
    assert [mount["hostPath"] for mount in edits["mounts"]] == ["/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"]
    assert "libcuda.so.1.1::/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so" in str(edits["hooks"])


def test_a_tegra_board_without_lists_gives_nothing_by_cdi_and_says_so(tmp_path: Path):
    """N31: runtimes refuse a device that brings nothing, and with it the whole file."""
    made = observer(planted(tmp_path, TEGRA), device_list_strategy=["cdi-cri"])

    [problem] = made.scan(0.0).problems

    assert (problem.path, names_of(made)) == (LISTS, [])
    assert not (tmp_path / "var/run/cdi").exists()


def test_wsl_gives_its_node_and_windows_drivers(tmp_path: Path):
    """One node, one directory, which the dynamic linker is told of."""
    made = host(
        tmp_path,
        "usr/lib/wsl/lib/libdxcore.so ==\nusr/lib/wsl/lib/libnvidia-ml.so.1 ==\nusr/lib/wsl/lib/nvidia-smi ==\n"
        "dev/dxg char 10:126\n",
    )
    edits = Runtime(tmp_path / "var/run/cdi").edits(names_of(made))

    assert names_of(made) == [f"{CDI}/gpu=all"]
    assert paths(edits) == ["/dev/dxg"]
    assert [mount["hostPath"] for mount in edits["mounts"]] == ["/usr/lib/wsl"]
    hooks = [hook["args"] for hook in edits["hooks"]]
    assert ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib/wsl/lib"] in hooks
    assert [
        "nvidia-ctk", "hook", "create-symlinks", "--link", "/usr/lib/wsl/lib/nvidia-smi::/usr/bin/nvidia-smi",
    ] in hooks  # fmt: skip
