"""What `devherd scan --as dra` prints, given to a real API server: it takes all, and has the same afterwards."""

import json
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction

from control_plane import ControlPlane

from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

COLLECTIONS = {
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
}
CONFIG = {
    "vendors": {"amd": {"naming": "mixed"}, "intel_gpu": {"shared_devices": 3}},
    "generic": [
        {"name": "devic.es/kvm", "groups": [{"count": 10, "paths": [{"path": "/dev/kvm"}]}]},
        {"name": "devic.es/serial", "groups": [{"usb": [{"vendor": "1a86", "product": "7523"}]}]},
    ],
    "simulated": [{"name": "example.com/gpu", "count": 65, "numa_nodes": 2}],
    "resources": [
        {"match": {"vendor": "simulated"}, "sharing": {"replicas": 4}},
        {"match": {"compute_capability": "9.*", "mig_mode": "disabled"}, "name": "example.com/hopper"},
        {
            "match": {"driver": "i915"},
            "name": "example.com/shared",
            "sharing": {"replicas": 2, "fail_requests_greater_than_one": True},
        },
    ],
}
SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def by_value(part, *, is_quantity=False):
    """The object with its quantities as numbers: the API server normalises them."""
    if isinstance(part, dict):
        of = {"value", "default", "min", "max", "step"}
        return {key: by_value(each, is_quantity=key in of) for key, each in part.items()}
    if isinstance(part, list):
        return [by_value(each) for each in part]
    known = re.fullmatch(r"(\d+)(\D*)", part) if is_quantity and isinstance(part, str) else None
    return Fraction(known[1]) * SUFFIXES[known[2]] if known else part


def printed(directory, spec, config):
    """What the command prints for a tree."""
    root = SimulatedNode.create(directory / spec, preset(spec)).root
    file = directory / f"{spec}.yaml"
    file.write_text(json.dumps(config))
    words = ["scan", "--as", "dra", "--output", "json", "--host-root", root, "--config", file]
    done = subprocess.run(
        [sys.executable, "-m", "devherd", *map(str, words)],
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "NODE_NAME": "node-1"},
    )
    return json.loads(done.stdout)["items"]


TREES = {
    "everything": CONFIG,
    "amd-8-cpx": {},
    "amd-1": {},
    "nvidia-mig": {"vendors": {"nvidia": {"mig_strategy": "mixed"}}},
    "fpga-dense": {},
    "rdma-sriov": {},
}


def test_a_real_api_server_takes_every_object_and_has_the_same_afterwards(whole_node, tmp_path):
    """With strict validation: each limit and each expression, and no field that it drops."""
    control_plane = ControlPlane(whole_node)
    kinds = Counter()
    for spec, config in TREES.items():
        for each in printed(tmp_path, spec, config):
            kind = each["kind"]
            kinds[kind] += 1
            made = control_plane.made(f"{COLLECTIONS[kind]}?fieldValidation=Strict", each)
            place = f"{COLLECTIONS[kind]}/{made['metadata']['name']}"
            found = control_plane.get(place)
            assert by_value(without_times(found["spec"])) == by_value(each["spec"])
            if kind == "ResourceSlice":
                assert made["metadata"]["name"].startswith(each["metadata"]["generateName"])
            control_plane.made(place, None, "DELETE")
    assert min(kinds[kind] for kind in COLLECTIONS) > len(TREES)


def without_times(spec):
    """Without when the API server saw each taint."""
    for device in spec.get("devices", []):
        for taint in device.get("taints", []):
            taint.pop("timeAdded")
    return spec
