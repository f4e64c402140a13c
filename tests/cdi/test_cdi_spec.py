"""The text of CDI specs, before the rules that runtimes hold them against."""

import json

import cdi_runtime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devherd import cdi as cdi_spec
from devherd.device_plugin.allocation import merge
from devherd.proto import spool_pb2

GPU = "k8s.device-plugin.nvidia.com/gpu"
ABSOLUTE = st.sampled_from(["/dev/a", "/dev/b", "/usr/lib64/libx.so.1", "/usr/bin/ctk"])
NODES = st.fixed_dictionaries(
    {"path": ABSOLUTE}, optional={"hostPath": ABSOLUTE, "permissions": st.sampled_from(["r", "rw", "rwm"])}
)
MOUNTS = st.fixed_dictionaries(
    {"hostPath": ABSOLUTE, "containerPath": ABSOLUTE},
    optional={"type": st.just("bind"), "options": st.just(["ro", "rbind"])},
)
HOOKS = st.fixed_dictionaries(
    {"hookName": st.sampled_from(["createRuntime", "createContainer"]), "path": ABSOLUTE},
    optional={"args": st.lists(st.text(max_size=5), max_size=3)},
)
EDITS = st.fixed_dictionaries(
    {"deviceNodes": st.lists(NODES, min_size=1, max_size=3)},
    optional={
        "mounts": st.lists(MOUNTS, min_size=1, max_size=3),
        "hooks": st.lists(HOOKS, min_size=1, max_size=2),
        "env": st.just(["A=b"]),
        "additionalGids": st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2),
    },
)
NAMES = st.builds("{}{}{}".format, st.sampled_from("aZ09"), st.text("aZ09_.:-", max_size=6), st.sampled_from("aZ09"))
KINDS = st.sampled_from([GPU, "intel.cdi.k8s.io/gpu", "a.b/c.d"])


@settings(deadline=None)
@given(KINDS, st.dictionaries(NAMES, EDITS, min_size=1, max_size=4), st.none() | EDITS, st.data())
def test_every_spec_is_one_that_runtimes_load_and_says_what_it_was_given(kind, devices, common, data):
    """Fields, names and version follow the specification; what is read back from a file is what was put in."""
    edits = {f"{kind}={name}": device for name, device in devices.items()}
    if common is not None:
        edits[kind] = common
    present = data.draw(st.sets(st.sampled_from(sorted(edits))))

    text = cdi_spec.spec_text(edits, present)

    spec = json.loads(text)
    cdi_runtime.check(spec)
    assert spec["cdiVersion"] == cdi_runtime.needed_version(spec)
    assert spec.get("containerEdits") == common
    assert {
        device["name"]: device["containerEdits"] for device in spec["devices"] if device["name"] in devices
    } == devices
    if "all" not in devices:
        assert cdi_spec.read(text) == edits


@given(st.text(max_size=12), st.text(max_size=8), st.text("aZ09._:-/=é ", max_size=8))
def test_a_name_is_legal_when_the_rules_of_the_specification_say_so(vendor, device_class, device):
    """One illegal name makes runtimes refuse the whole file, with all its devices."""
    spec = {
        "cdiVersion": "1.0.0",
        "kind": f"{vendor}/{device_class}",
        "devices": [{"name": device, "containerEdits": {"env": ["A=b"]}}],
    }
    try:
        cdi_runtime.check(spec)
        loads = "\n" not in spec["kind"] + device and "=" not in spec["kind"]
    except cdi_runtime.jsonschema.ValidationError:
        loads = False

    assert cdi_spec.is_legal(f"{vendor}/{device_class}={device}") == loads


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        (f"{GPU}=GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689", True),
        (f"{GPU}=0:1", True),
        (f"{GPU}=all", True),
        ("intel.cdi.k8s.io/fpga=dfl-fme.0", True),
        (GPU, True),
        (f"{GPU}=MIG-GPU-3291dfa4/1/0", False),
        (f"{GPU}=", False),
        (f"{GPU}=-1", False),
        ("gpu=0", False),
        ("1vendor.com/gpu=0", False),
    ],
)
def test_the_names_of_vendors_are_legal_but_for_the_mig_ids_of_old_drivers(name, legal):
    """`MIG-GPU-<uuid>/<gi>/<ci>` holds slashes."""
    assert cdi_spec.is_legal(name) is legal


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("intel.cdi.k8s.io/fpga=dfl-fme.0", "intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"),
        ("intel.cdi.k8s.io/gpu=card10", "intel.cdi.k8s.io-gpu-card10.yaml"),
        (f"{GPU}=GPU-1", "k8s.device-plugin.nvidia.com-gpu.json"),
        (GPU, "k8s.device-plugin.nvidia.com-gpu.json"),
        ("k8s.device-plugin.nvidia.com/imex-channel=0", "k8s.device-plugin.nvidia.com-imex-channel.json"),
        ("k8s.device-plugin.nvidia.com/gds=all", "k8s.device-plugin.nvidia.com-gds.json"),
    ],
)
def test_files_have_the_names_of_the_vendors_plugins(name, file):
    """Drop-in: what the vendor's plugin has left behind is replaced."""
    assert cdi_spec.file_name(name) == file


@pytest.mark.parametrize(
    ("edits", "name", "version"),
    [
        ({"hooks": [{"hookName": "createRuntime", "path": "/x"}]}, "a.b/c=d", "0.3.0"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/x", "type": "bind"}]}, "a.b/c=d", "0.4.0"),
        ({"deviceNodes": [{"path": "/dev/x", "hostPath": "/y/dev/x"}]}, "a.b/c=d", "0.5.0"),
        ({"deviceNodes": [{"path": "/dev/x"}]}, "a.b/c=0", "0.5.0"),
        ({"deviceNodes": [{"path": "/dev/x"}]}, "a.b/c.d=e", "0.6.0"),
        ({"additionalGids": [44]}, "a.b/c=d", "0.7.0"),
    ],
)
def test_the_version_is_as_low_as_what_is_used_allows(edits, name, version):
    """Runtimes refuse versions that they do not know yet; older ones know fewer."""
    assert json.loads(cdi_spec.spec_text({name: edits}, {name}))["cdiVersion"] == version


def test_all_is_every_present_device_of_the_kind_at_once():
    """N32: the vendor's plugin offers no `all`. A device that is gone would keep its containers from starting."""
    edits = {f"{GPU}={name}": {"deviceNodes": [{"path": f"/dev/nvidia{name}"}]} for name in "abc"}

    spec = json.loads(cdi_spec.spec_text(edits, {f"{GPU}=a", f"{GPU}=c"}))

    assert [device["name"] for device in spec["devices"]] == ["a", "b", "c", "all"]
    assert spec["devices"][3]["containerEdits"] == {"deviceNodes": [{"path": "/dev/nvidiaa"}, {"path": "/dev/nvidiac"}]}


def test_where_each_device_has_its_own_file_there_is_no_all():
    """Two files that name one device make runtimes refuse both."""
    name = "intel.cdi.k8s.io/gpu=card0"

    spec = json.loads(cdi_spec.spec_text({name: {"deviceNodes": [{"path": "/dev/dri/card0"}]}}, {name}))

    assert [device["name"] for device in spec["devices"]] == ["card0"]


def test_without_a_device_there_is_no_spec():
    """Runtimes refuse a file that names none."""
    assert cdi_spec.spec_text({GPU: {"env": ["A=b"]}}, ()) is None
    assert cdi_spec.spec_text({}, ()) is None


CLAIM = "devherd.io/claim"
UID = "5b4d9a0e-6d0c-4f7e-9f0a-3a1c7f1d2b11"
VALUES = st.one_of(
    st.lists(st.sampled_from(["0000:3b:00.1", "0000:3b:00.2", "GPU-1"]), max_size=3).map(",".join),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), min_size=1, max_size=2).map(json.dumps),
)
VARIABLES = st.dictionaries(st.sampled_from(["PCIDEVICE_A", "PCIDEVICE_A_INFO", "PCI_RESOURCE_B"]), VALUES, max_size=3)


@given(variables=st.lists(VARIABLES, min_size=1, max_size=4))
def test_the_spec_of_a_claim_joins_variables_as_the_device_plugin_does(variables):
    """Moved to DRA, a pod finds its devices in the same variables."""
    edits = [spool_pb2.Edits(envs=each) for each in variables]
    joined = [f"{name}={value}" for name, value in sorted(merge(edits).envs.items())]

    text = cdi_spec.claim_spec(CLAIM, {UID: edits})

    if not joined:
        assert text is None
        return
    assert text is not None
    cdi_runtime.check(json.loads(text))
    assert cdi_spec.read(text) == {f"{CLAIM}={UID}": {"env": joined}}


def test_the_spec_of_a_claim_has_the_mounts_that_depend_on_the_name_asked_for():
    """As of MPS: once, however many devices have them."""
    mount = spool_pb2.Mount(host_path="/run/mps/a/pipe", container_path="/mps/a/pipe")
    edits = spool_pb2.Edits(mounts=[mount])

    text = cdi_spec.claim_spec(CLAIM, {UID: [edits, edits]})

    assert text is not None
    options = ["rbind", "rprivate", "rw"]
    expected = {"hostPath": "/run/mps/a/pipe", "containerPath": "/mps/a/pipe", "options": options}
    assert cdi_spec.read(text) == {f"{CLAIM}={UID}": {"mounts": [expected]}}
    cdi_runtime.check(json.loads(text))
