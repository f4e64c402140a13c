"""NVIDIA's labels: names and values of GPU feature discovery's table, for each layout of a node."""

from types import SimpleNamespace

import pytest
from labelled import below, entry_of, labelled, labels_of

from devherd.inventory import Entry
from devherd.node_labels.node import LabelFacts
from devherd.node_labels.nvidia import family_of, gpus_of, nvidia_labels, sanitised
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

H100 = "NVIDIA-H100-80GB-HBM3"
OF_EVERY_NODE = {
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "95",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "95",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/gpu.mode": "compute",
}
OF_NVML = {
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "0",
    "nvidia.com/cuda.runtime.major": "13",
    "nvidia.com/cuda.runtime.minor": "0",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mps.capable": "false",
}


def resource(prefix: str, product: str, count: int, replicas: int = 1, strategy: str = "none") -> dict[str, str]:
    return {
        f"{prefix}.product": product,
        f"{prefix}.count": str(count),
        f"{prefix}.replicas": str(replicas),
        f"{prefix}.sharing-strategy": strategy,
    }


def mig(prefix: str, count: int, profile: str, memory: int, slices: int) -> dict[str, str]:
    return {
        **resource(prefix, f"{H100}-MIG-{profile}", count),
        f"{prefix}.memory": str(memory),
        f"{prefix}.slices.gi": str(slices),
        f"{prefix}.slices.ci": str(slices),
        f"{prefix}.multiprocessors": str(16 * slices),
        **{f"{prefix}.engines.{kind}": str(slices) for kind in ("copy", "decoder", "jpeg")},
        f"{prefix}.engines.encoder": "0",
        f"{prefix}.engines.ofa": "0",
    }


def test_whole_gpus_with_nvml(tmp_path):
    """Every label of the table that the driver, NVML and the firmware tell of."""
    labels = labelled(tmp_path, "nvidia-8-nvswitch", machine="DGX H100 (8x)")

    assert below(labels, "nvidia.com/") == {
        **OF_EVERY_NODE,
        **OF_NVML,
        **resource("nvidia.com/gpu", H100, 8),
        "nvidia.com/gpu.machine": "DGX-H100-8x",
    }
    assert set(labels.missing) == {"nvidia.com/gfd.timestamp", "nvidia.com/gpu.clique", "nvidia.com/vgpu.*"}


def test_without_nvml_what_it_alone_knows_is_left_out_with_the_reason(tmp_path):
    """Nothing is guessed."""
    labels = labelled(tmp_path, "nvidia-8")

    expected = {**OF_EVERY_NODE, **resource("nvidia.com/gpu", H100, 8), "nvidia.com/mps.capable": "false"}
    assert below(labels, "nvidia.com/") == expected
    assert {name for name, why in labels.missing.items() if "only NVML" in why} == {
        "nvidia.com/cuda.runtime-version.full",
        "nvidia.com/gpu.clique",
        "nvidia.com/gpu.compute.major",
        "nvidia.com/gpu.compute.minor",
        "nvidia.com/gpu.family",
        "nvidia.com/gpu.memory",
        "nvidia.com/mig.capable",
    }


def gpu(number: int, **facts: str) -> Entry:
    """A GPU with these facts, given by NVML; empty ones are unknown."""
    known = {"pci_address": f"0000:0{number}:00.0", "model": "A"} | {name: text for name, text in facts.items() if text}
    made = {name: SimpleNamespace(text=text, source="NVML") for name, text in known.items()}
    return entry_of("nvidia.com/gpu", "nvidia", made, number)


CLUSTER = "8f5c1e6a-9d3b-4c53-a3f5-0f6b1c2d3e4f"


@pytest.mark.parametrize(
    ("cliques", "said"),
    [
        ([f"{CLUSTER}.4"] * 2, f"{CLUSTER}.4"),
        ([f"{CLUSTER}.4", ""], f"{CLUSTER}.4"),
        ([f"{CLUSTER}.4", f"{CLUSTER}.5"], "its GPUs are in 2 cliques of the NVLink fabric"),
        (["", ""], "no GPU has joined an NVLink fabric"),
    ],
)
def test_the_clique_is_that_of_all_gpus_in_the_fabric(cliques, said):
    """Pods of one job are sent to nodes of one clique, which NVIDIA's IMEX domains need."""
    entries = [gpu(number, memory_bytes="1", fabric_clique=clique) for number, clique in enumerate(cliques)]
    labels = nvidia_labels(LabelFacts(entries=entries))
    name = "nvidia.com/gpu.clique"
    assert labels.values.get(name, labels.missing.get(name)) == said


def test_mixed_mig_devices_have_names_of_their_own(tmp_path):
    """Those of whole GPUs count the GPUs in MIG mode, too."""
    labels = labelled(tmp_path, "nvidia-mig", vendors={"nvidia": {"mig_strategy": "mixed"}})

    assert below(labels, "nvidia.com/") == {
        **OF_EVERY_NODE,
        **OF_NVML,
        **resource("nvidia.com/gpu", H100, 4),
        **mig("nvidia.com/mig-3g.40gb", 2, "3g.40gb", 40779, 3),
        **mig("nvidia.com/mig-2g.20gb", 2, "2g.20gb", 20389, 2),
        **mig("nvidia.com/mig-1g.10gb", 2, "1g.10gb", 10194, 1),
        "nvidia.com/mig.strategy": "mixed",
    }


def test_single_mig_devices_take_the_names_of_gpus(tmp_path):
    """Family and compute capability stay those of the GPU."""
    labels = labelled(tmp_path, "nvidia-mig-single", vendors={"nvidia": {"mig_strategy": "single"}})

    assert below(labels, "nvidia.com/") == {
        **OF_EVERY_NODE,
        **OF_NVML,
        **mig("nvidia.com/gpu", 14, "1g.10gb", 10194, 1),
        "nvidia.com/mig.strategy": "single",
    }


def test_a_layout_that_is_not_single_is_said_to_be_invalid(tmp_path):
    """So a pod that selects a product is not sent there."""
    labels = labelled(tmp_path, "nvidia-mig", vendors={"nvidia": {"mig_strategy": "single"}})

    said = {name.removeprefix("nvidia.com/gpu."): value for name, value in below(labels, "nvidia.com/gpu.").items()}
    assert (said["product"], said["count"], said["replicas"]) == (f"{H100}-MIG-INVALID", "0", "0")
    assert (said["sharing-strategy"], said["memory"], said["family"]) == ("", "0", "hopper")


def test_gpus_in_mig_mode_under_strategy_none_cannot_be_shared(tmp_path):
    """All of the node's are: replicas is 0, as GPU feature discovery has it."""
    labels = labelled(tmp_path, "nvidia-mig-single")

    assert below(labels, "nvidia.com/gpu.replicas", "nvidia.com/gpu.count") == {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.replicas": "0",
    }


@pytest.mark.parametrize(
    ("sharing", "product", "replicas", "strategy"),
    [
        ({"replicas": 4}, f"{H100}-SHARED", 4, "time-slicing"),
        ({"replicas": 4, "rename": "nvidia.com/gpu.shared"}, H100, 4, "time-slicing"),
        ({"replicas": 2, "strategy": "mps"}, f"{H100}-SHARED", 2, "mps"),
        ({"replicas": 1}, H100, 1, "none"),
    ],
)
def test_shared_gpus_say_how_and_for_how_many(tmp_path, sharing, product, replicas, strategy):
    """A renamed resource needs no suffix."""
    vendors = {"nvidia": {"mps_root": "/run/nvidia/mps"}}
    rules = [{"match": {"vendor": "nvidia"}, "sharing": sharing}]
    labels = labelled(tmp_path, "nvidia-8-nvswitch", resources=rules, vendors=vendors)

    expected = resource("nvidia.com/gpu", product, 8, replicas, strategy)
    assert {name: labels.values[name] for name in expected} == expected
    assert labels.values["nvidia.com/mps.capable"] == str(strategy == "mps").lower()


def test_a_gpu_in_mig_mode_without_mig_devices_is_counted_and_given_in_parts_only():
    """NVML alone knows that it is."""
    found = list(gpus_of([gpu(0), gpu(1, mig_mode="disabled"), gpu(2, mig_mode="enabled")]))

    assert [each.in_mig_mode for each in found] == [False, False, True]


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        *(((1, 3), "tesla"), ((2, 0), "fermi"), ((3, 5), "kepler"), ((5, 2), "maxwell"), ((6, 1), "pascal")),
        *(((7, 0), "volta"), ((7, 2), "volta"), ((7, 5), "turing"), ((8, 0), "ampere"), ((8, 7), "ampere")),
        *(((8, 9), "ada-lovelace"), ((9, 0), "hopper"), ((10, 0), "blackwell"), ((12, 1), "blackwell")),
        *(((13, 0), "rubin"), ((4, 0), "undefined"), ((11, 0), "undefined")),
    ],
)
def test_the_family_follows_from_the_compute_capability(capability, family):
    """As NVIDIA's table has it."""
    assert family_of(*capability) == family


def test_names_lose_what_a_label_cannot_have():
    """Blanks become dashes."""
    assert sanitised("  NVIDIA RTX PRO 6000 (Server)  Edition/x ") == "NVIDIA-RTX-PRO-6000-Server-Editionx"


def test_a_virtual_gpu_names_the_driver_of_its_host(tmp_path):
    """The capability of NVIDIA's own test: NVIDIA/k8s-device-plugin, internal/vgpu/pciutil.go, `vgpuConfig`."""
    SimulatedNode.create(tmp_path, preset("nvidia-1"))
    [function] = (tmp_path / "sys/bus/pci/drivers/nvidia").glob("0000:*")
    space = bytearray(256)
    space[:8] = b"\xde\x10\xb8\x1e\x02\x05\xff\x06"
    space[0x06] |= 0x10
    space[0x34] = 0xD0
    space[0xD0 : 0xD0 + 27] = b"\x09\x68\x1bVF\x00\x16460.16\0\0\0\0r460_00\0\0\0"
    (function.resolve() / "config").write_bytes(space)

    assert below(labels_of(tmp_path), "nvidia.com/vgpu") == {
        "nvidia.com/vgpu.present": "true",
        "nvidia.com/vgpu.host-driver-version": "460.16",
        "nvidia.com/vgpu.host-driver-branch": "r460_00",
    }
    (function.resolve() / "config").write_bytes(space[:64])  # all that is shown without CAP_SYS_ADMIN
    labels = labels_of(tmp_path)
    assert below(labels, "nvidia.com/vgpu") == {}
    assert "cannot be read whole" in labels.missing["nvidia.com/vgpu.*"]
