"""What labels take from NVML's answer file, and that one of another shape is no answer, and said to be none."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.inventory import Entry
from devherd.node_labels.node import Node
from devherd.node_labels.nvidia import labels_of
from devherd.node_labels.nvml_facts import NOT_ANSWERED, NvmlFacts, NvmlGpu, NvmlMig, facts_in

MIG = {"uuid": "MIG-1", "gpu_slices": 3, "compute_slices": 2, "multiprocessors": 46, "engines": {"copy": 3}}
GPU = {
    "pci_address": "0000:3b:00.0",
    "model": "NVIDIA H100",
    "memory_bytes": 85520809984,
    "compute_capability": [9, 0],
    "mig_mode": True,
    "fabric_clique": "a.1",
    "mig_devices": [MIG | {"index": 0, "profile_suffixes": ["+me"]}],
    "nvlinks": {"0000:5d:00.0": 18},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def facts_of(gpu):
    return facts_in(json.dumps({"facts": {"gpus": [gpu]}, "failures": 0}).encode())


def test_an_answer_is_taken_whole():
    """What labels have no use for is passed over."""
    mig = NvmlMig(uuid="MIG-1", gpu_slices=3, compute_slices=2, multiprocessors=46, engines={"copy": 3})
    gpu = NvmlGpu(
        pci_address="0000:3b:00.0",
        model="NVIDIA H100",
        memory_bytes=85520809984,
        compute_capability="9.0",
        mig_mode=True,
        fabric_clique="a.1",
        mig_devices=(mig,),
    )

    assert facts_of(GPU).gpus == (gpu,)


@pytest.mark.parametrize("unknown", [{}, dict.fromkeys(GPU)])
def test_what_nvml_does_not_say_is_unknown(unknown):
    """By leaving it out, or by null."""
    assert facts_of(unknown).gpus == (NvmlGpu(),)


@pytest.mark.parametrize("answer", [b"", b'{"facts": null}', b"{}"])
def test_there_may_be_no_answer_yet(answer):
    """Or none at all."""
    assert facts_in(answer) == NvmlFacts((), NOT_ANSWERED)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ("H100", "answer.facts.gpus.0 is no object"),
        ({"pci_address": 3}, "answer.facts.gpus.0.pci_address is not text"),
        ({"memory_bytes": "80 GiB"}, "answer.facts.gpus.0.memory_bytes is no number of things"),
        ({"memory_bytes": 8e10}, "answer.facts.gpus.0.memory_bytes is no number of things"),
        ({"compute_capability": 9}, "answer.facts.gpus.0.compute_capability is not a list"),
        ({"compute_capability": [9]}, "answer.facts.gpus.0.compute_capability is not of two numbers"),
        ({"compute_capability": [9, True]}, "answer.facts.gpus.0.compute_capability.1 is no number of things"),
        ({"mig_mode": 1}, "answer.facts.gpus.0.mig_mode is not true or false"),
        ({"fabric_clique": ["a", "b"]}, "answer.facts.gpus.0.fabric_clique is not text"),
        ({"mig_devices": {"MIG-1": MIG}}, "answer.facts.gpus.0.mig_devices is not a list"),
        ({"mig_devices": [MIG, "MIG-2"]}, "answer.facts.gpus.0.mig_devices.1 is no object"),
        ({"mig_devices": [MIG | {"gpu_slices": -1}]}, "answer.facts.gpus.0.mig_devices.0.gpu_slices is no number of"),
        ({"mig_devices": [MIG | {"engines": [1]}]}, "answer.facts.gpus.0.mig_devices.0.engines is not an object"),
        ({"mig_devices": [MIG | {"engines": {"copy": "3"}}]}, "mig_devices.0.engines.copy is no number of things"),
    ],
)
def test_an_answer_of_another_shape_is_none(gpu, why):
    """Defect: the process that labels the node ended with a traceback, each time that it was started again."""
    found = facts_of(GPU | gpu if isinstance(gpu, dict) else gpu)

    assert found.gpus == ()
    assert found.why_none.startswith("NVML alone knows it, and its answer has another shape: ")
    assert why in found.why_none


def test_labels_say_why_the_answer_is_not_taken():
    """What the driver says is said all the same."""
    device = SimpleNamespace(vendor="nvidia", card="c", id="d", facts={"model": SimpleNamespace(text="A")})
    labels = labels_of(Node(entries=[Entry(device, "nvidia.com/gpu")], nvml=facts_of({"memory_bytes": "80 GiB"})))

    assert labels.values["nvidia.com/gpu.product"] == "A"
    assert labels.missing["nvidia.com/gpu.memory"].endswith("memory_bytes is no number of things")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GPU, JSON) | {"mig_devices": st.lists(JSON, max_size=2)}))
def test_no_answer_ends_the_process(gpu):
    """Each is taken, or refused with a reason."""
    found = facts_of(gpu)

    assert found.gpus or "its answer has another shape" in found.why_none


@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_neither_does_a_file_of_anything_else(content):
    """Such as one that was cut off."""
    assert facts_in(content).gpus == ()


def test_brackets_without_an_end_are_no_answer():
    """Deeper than Python follows."""
    assert facts_in(b"[" * 1_000_000).why_none.endswith("is no JSON")
