"""Every label is one that Kubernetes takes, whatever a host says; devherd's own; those that are left out."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled import entry_of, labelled

from devherd.inventory import Entry, Inventory
from devherd.node_labels import others
from devherd.node_labels.node import LabelFacts, Labels, is_name, is_value, node_of
from devherd.node_labels.others import labels_of_node
from devherd.proto.spool_pb2 import Device, Offer

VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""As k8s.io/apimachinery/pkg/util/validation has them."""

POLICY = Path(__file__).parents[2] / "deploy/kubernetes/components/labels-node/policy.yaml"
ALLOWED = re.findall(r"key\.matches\(r'(.*?)'\)", POLICY.read_text())
"""The names of labels that a token of devherd may write by the component labels-node."""


def is_allowed(label: str) -> bool:
    """Whether the API server lets devherd write it."""
    return any(re.search(pattern, label) for pattern in ALLOWED)


TEXT = st.one_of(st.text(max_size=80), st.from_regex(r"[ -~]{0,80}", fullmatch=True))
FACTS = {
    "nvidia": (
        *("model", "driver_version", "cuda_version", "compute_capability", "mig_profile", "pci_class", "uuid"),
        *("mig_mode", "fabric_clique", "engines_copy", "engines_ofa"),
    ),
    "amd": ("product_name", "device_id", "driver_version", "cu_count", "simd_count", "compute_partition"),
    "intel-gpu": ("pci_class", "device_id"),
}


NUMBERS = {
    "nvidia": ("memory_bytes", "gpu_slices", "compute_slices", "multiprocessors"),
    "amd": ("vram_bytes",),
    "intel-gpu": (),
}
"""Facts that are numbers: whoever reads the host refuses another text."""


@st.composite
def entries(draw) -> list[Entry]:
    """Devices whose files, and NVML, say anything at all."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        vendor = draw(st.sampled_from(sorted(FACTS)))
        texts = {name: draw(TEXT) for name in FACTS[vendor] if draw(st.booleans())}
        texts |= {name: str(draw(st.integers(0, 1 << 63))) for name in NUMBERS[vendor] if draw(st.booleans())}
        texts["pci_address"] = f"0000:0{draw(st.integers(0, number))}:00.0"
        facts = {
            name: SimpleNamespace(text=text, source=draw(st.sampled_from(["/sys/x", "NVML"])))
            for name, text in texts.items()
        }
        made.append(entry_of("a.b/c", vendor, facts, number))
    return made


RESOURCE_NAMES = st.from_regex(r"[a-z]([-a-z.]{0,50}[a-z])?/[A-Za-z]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)


@given(entries(), RESOURCE_NAMES, TEXT, st.sampled_from(["none", "single", "mixed"]), st.integers(0, 9))
def test_whatever_host_and_nvml_say_names_and_values_are_legal(devices, name, machine, strategy, replicas):
    """One that is not would have the API server refuse them all."""
    offered = [
        Device(
            vendor=entry.vendor, card=entry.device.card, id=entry.device.id, replicas=replicas, by_mps=replicas % 2 == 1
        )
        for entry in devices
    ]
    offer = Offer(name=name, devices=offered)
    labels = labels_of_node(LabelFacts(entries=devices, offers=[offer], mig_strategy=strategy, machine=machine), [])

    for label, value in labels.values.items():
        prefix, _, rest = label.partition("/")
        assert SUBDOMAIN.fullmatch(prefix), label
        assert NAME.fullmatch(rest), label
        assert VALUE.fullmatch(value), label
        assert (len(prefix) <= 253, len(rest) <= 63, len(value) <= 63) == (True, True, True), label
        assert is_allowed(label), label


FOREIGN = (
    *("node-role.kubernetes.io/control-plane", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "zone"),
    *(
        "nvidia.com/device-plugin.config",
        "nvidia.com/gpu.deploy.client",
        "nvidia.com/mig.config",
        "nvidia.com/gpu.present",
    ),
    *("devherd.io/config", "devherd", "amd.com/gpu", "xnvidia.com/gpu.count", "nvidia_com/gpu.count"),
)


@pytest.mark.parametrize("label", FOREIGN)
def test_labels_by_which_others_steer_the_node_are_not_devherds_to_write(label):
    """Whoever has the token of a pod could move pods, or the GPU operator's parts, to another node by them."""
    assert len(ALLOWED) == 9
    assert not is_allowed(label)


@given(TEXT)
def test_what_kubernetes_takes_is_taken_and_nothing_else(text):
    """The rule of its own validation."""
    assert is_value(text) == bool(VALUE.fullmatch(text) and len(text) <= 63)
    assert is_name(f"a.b/{text}") == bool(NAME.fullmatch(text) and len(text) <= 63)


def test_an_illegal_label_is_left_out_with_the_reason():
    """The others stay."""
    labels = Labels()
    labels.put("a/good", "x")
    labels.put("a/bad", "two words")
    labels.put("nameless", "x")

    assert labels.values == {"a/good": "x"}
    assert labels.missing["a/bad"].startswith("`two words` is not a legal value")
    assert labels.missing["nameless"].startswith("not a legal name")


def test_each_resource_has_its_count(tmp_path):
    """Of devices, not of replicas."""
    rules = [{"match": {"vendor": "generic"}, "sharing": {"replicas": 5}}]
    generic = [{"name": "devic.es/kvm", "groups": [{"paths": [{"path": "/dev/kvm"}]}]}]
    labels = labelled(tmp_path, "generic", generic=generic, resources=rules, simulated=[{"name": "a.b/c", "count": 3}])

    assert labels.values == {"devherd.io/devic.es_kvm.count": "1", "devherd.io/a.b_c.count": "3"}


@given(RESOURCE_NAMES, RESOURCE_NAMES)
def test_no_two_resources_share_a_label(one, other):
    """A name that is too long ends in a hash."""
    assert len(others.label_key_of(one)) <= 57
    assert (others.label_key_of(one) == others.label_key_of(other)) == (one == other)


def test_globs_leave_labels_out(tmp_path):
    """Also from what is said to be missing."""
    labels = labelled(tmp_path, "amd-8", node_labels={"write": "node", "omit": ["beta.amd.com/*", "devherd.io/*"]})

    assert {name.partition("/")[0] for name in labels.values | labels.missing} == {"amd.com"}


def test_devices_that_are_gone_are_not_counted():
    """They are listed as Unhealthy for a while, but the node has them no longer."""
    config = SimpleNamespace(native="{}")
    inventory = Inventory([entry_of("amd.com/gpu", "amd", {}, gone_since=1.0)])
    assert node_of(config, inventory, []).entries == []
