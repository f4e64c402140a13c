"""The configurations of both RDMA plugins: pools that containers share, and functions that go to one."""

import json

import pytest
import yaml

from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.importers import import_text

SHARED = {
    "periodicUpdateInterval": 300,
    "configList": [
        {"resourceName": "hca_a", "rdmaHcaMax": 1000, "devices": ["ib0", "ib1"]},
        {
            "resourceName": "hca_b",
            "resourcePrefix": "example.com",
            "rdmaHcaMax": 500,
            "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"], "ifNames": ["ib3"], "linkTypes": ["infiniband"]},
        },
    ],
}


def only(text):
    (found,) = import_text(text, "the text", None)
    Config.model_validate(found.config)
    return found


def stream(config, **container):
    """A DaemonSet and the ConfigMap of its file, which is JSON."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.json": json.dumps(config)}}
    pod = {"containers": [container]}
    workload = {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {"spec": pod}}}
    return yaml.safe_dump_all([workload, config_map])


def test_pools_of_the_shared_plugin_keep_their_names_sizes_and_selectors():
    """Intel B1: `devices` are interfaces; the prefix is `rdma` where none is given."""
    found = only(stream(SHARED, name="k8s-rdma-shared-dp-ds", image="ghcr.io/mellanox/k8s-rdma-shared-dev-plugin"))

    assert found.config == {
        "vendors": {
            "rdma": {
                "mode": "shared",
                "pools": [
                    {"name": "rdma/hca_a", "rdma_hca_max": 1000, "selectors": {"if_names": ["ib0", "ib1"]}},
                    {
                        "name": "example.com/hca_b",
                        "rdma_hca_max": 500,
                        "selectors": {
                            "vendors": ["15b3"],
                            "device_ids": ["1017"],
                            "if_names": ["ib3"],
                            "link_types": ["infiniband"],
                        },
                    },
                ],
            }
        }
    }
    assert [note.partition(" is left out")[0] for note in found.notes] == ["periodicUpdateInterval"]


def test_rdma_resources_of_the_sriov_plugin_become_rules_in_their_order():
    """Intel B2: selectors are alternatives; what is no RDMA device is left out, and said."""
    config = {
        "resourceList": [
            {"resourceName": "net", "selectors": {"vendors": ["8086"]}},
            {
                "resourceName": "mlnx_rdma",
                "selectors": [
                    {"vendors": ["15b3"], "devices": ["101E"], "isRdma": True, "linkTypes": ["ether"]},
                    {"rootDevices": ["0000:3b:00.0"], "isRdma": True, "needVhostNet": True},
                ],
            },
            {"resourceName": "picky", "selectors": {"isRdma": True, "acpiIndexes": ["101"]}},
        ]
    }
    container = {
        "name": "kube-sriovdp",
        "image": "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:latest",
        "args": ["--log-dir=sriovdp", "--log-level=10", "--resource-prefix=nvidia.com"],
    }

    found = only(stream(config, **container))

    by_ids = {"vendor": "rdma", "vendor_id": ["0x15b3"], "device_id": ["0x101e"], "link_layer": ["Ethernet"]}
    assert found.config == {
        "vendors": {"rdma": {"mode": "sriov"}},
        "resources": [
            {"match": by_ids, "name": "nvidia.com/mlnx_rdma"},
            {"match": {"vendor": "rdma", "physfn": ["0000:3b:00.0"]}, "name": "nvidia.com/mlnx_rdma"},
            {"match": {"vendor": "rdma"}, "advertise": False},
        ],
    }
    said = " ".join(found.notes)
    assert "nvidia.com/net is left out: only its RDMA devices are served" in said
    assert "nvidia.com/picky is left out: no fact of a device corresponds to acpiIndexes" in said
    assert "needVhostNet" in said
    assert "-log-dir, -log-level are left out" in said


def matched(selectors):
    """What the rules for one resource match, without what all of them have."""
    config = {"resourceList": [{"resourceName": "a", "selectors": {"isRdma": True, **selectors}}]}
    rules = only(json.dumps(config)).config.get("resources", [])
    assert all(rule["name"] == "intel.com/a" and rule["match"].pop("vendor") == "rdma" for rule in rules[:-1])
    return [rule["match"] for rule in rules[:-1]]


def test_functions_of_a_physical_one_are_selected_by_its_interface_and_their_numbers():
    """As the plugin reads `pfNames`: numbers and ranges, both ends included; the first entry of a name counts."""
    assert matched({"pfNames": ["ens1f0"]}) == [{"pf_name": ["ens1f0"]}]
    assert matched({"pfNames": ["ens1f0#0-2,7", "ens1f1#3", "ens1f0#5"], "pKeys": ["0x8001"]}) == [
        {"pkey": ["0x8001"], "pf_name": ["ens1f0"], "vf_index": ["0", "1", "2", "7"]},
        {"pkey": ["0x8001"], "pf_name": ["ens1f1"], "vf_index": ["3"]},
    ]


def test_functions_of_a_physical_one_are_selected_by_its_address_and_their_numbers():
    """`rootDevices` have the same form; what both selectors mean is what is meant."""
    assert matched({"rootDevices": ["0000:3B:00.0#0-1"]}) == [{"physfn": ["0000:3b:00.0"], "vf_index": ["0", "1"]}]
    both = {"rootDevices": ["0000:3b:00.0#0-3"], "pfNames": ["ens1f0#2-9", "ens1f1#8"]}
    assert matched(both) == [{"pf_name": ["ens1f0"], "physfn": ["0000:3b:00.0"], "vf_index": ["2", "3"]}]


@pytest.mark.parametrize("text", ["ens1f0#", "ens1f0#a", "ens1f0#1-", "ens1f0#1-2-3", "ens1f0#-1", "ens1f0#1#2"])
def test_numbers_that_make_no_sense_are_refused(text):
    """The plugin prints a line and selects nothing, so that nobody knows why."""
    with pytest.raises(UsageError, match="names no virtual functions"):
        matched({"pfNames": [text]})


def test_a_selector_that_cannot_be_said_widens_no_rule():
    """Without it the rule would take every RDMA device of the node."""
    config = {"resourceList": [{"resourceName": "a", "selectors": {"isRdma": True, "acpiIndexes": ["101"]}}]}

    assert only(json.dumps(config)).config == {"vendors": {"rdma": {"enabled": False}}}


FUNCTION = "0000:01:00.0"


@pytest.mark.parametrize(
    ("theirs", "match"),
    [
        ({"pciaddresses": [FUNCTION], "isrdma": True}, {"pci_address": [FUNCTION]}),
        (
            {"rootdevices": [FUNCTION], "Vendors": ["15b3"], "IsRdma": True},
            {"vendor_id": ["0x15b3"], "physfn": [FUNCTION]},
        ),
        ({"PFNAMES": ["ens1f0"], "isRdma": True}, {"pf_name": ["ens1f0"]}),
        ({"isRdma": False, "ISRDMA": True, "pkeys": ["0x1"]}, {"pkey": ["0x1"]}),
    ],
)
def test_selectors_of_the_sriov_plugin_are_read_in_any_letter_case(theirs, match):
    """Defect: a selector was dropped, and the resource had every RDMA function of the node.

    Go's encoding/json matches keys without case: https://pkg.go.dev/encoding/json#Unmarshal; seen in the issue 591 of
    sriov-network-device-plugin.
    """
    found = only(json.dumps({"ResourceList": [{"resourcename": "r", "Selectors": theirs}]}))
    assert found.config["resources"][0] == {"match": {"vendor": "rdma", **match}, "name": "intel.com/r"}
    assert (found.notes, found.serves_the_same) == ([], True)


def test_selectors_of_the_shared_plugin_are_read_in_any_letter_case():
    """Likewise."""
    entry = {"resourcename": "a", "RDMAHCAMAX": 1, "selectors": {"Vendors": ["15b3"], "ifnames": ["ib0"]}}
    found = only(json.dumps({"configlist": [entry]}))
    [pool] = found.config["vendors"]["rdma"]["pools"]
    assert pool == {
        "name": "rdma/a",
        "rdma_hca_max": 1,
        "selectors": {"vendors": ["15b3"], "if_names": ["ib0"]},
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"selectors": {"isRdma": True, "pciAddreses": [FUNCTION]}},
        {"selectors": [{"isRdma": True, "subsystems": ["1"]}]},
        {"selectors": {"isRdma": True}, "pciAddresses": [FUNCTION]},
        {"selectors": {"isRdma": True, "vdpaType": "vhost"}},
    ],
)
def test_a_resource_with_a_selector_that_is_not_known_is_left_out_and_one_with_a_setting_is_not(entry):
    """Defect: what chooses fewer devices was left out as if it were a setting, and a pod got too much."""
    good = {"resourceName": "good", "selectors": {"isRdma": True, "needVhostNet": True, "acpiIndexes": []}, "other": 1}
    found = only(json.dumps({"resourceList": [{"resourceName": "bad", **entry}, good]}))
    assert found.config["resources"] == [{"match": {"vendor": "rdma"}, "name": "intel.com/good"}]
    assert found.notes[0].startswith("intel.com/bad is left out: ")
    assert any("needVhostNet" in note for note in found.notes)
    assert not found.serves_the_same


@pytest.mark.parametrize("entry", [{"selectors": {"ifName": ["ib0"]}}, {"ifNames": ["ib0"]}])
def test_a_pool_with_a_selector_that_is_not_known_is_left_out(entry):
    """Likewise; a setting beside it is a comment."""
    good = {"resourceName": "good", "rdmaHcaMax": 1, "selectors": {"vendors": ["15b3"], "drivers": []}, "other": 1}
    found = only(json.dumps({"configList": [{"resourceName": "bad", "rdmaHcaMax": 2, **entry}, good]}))
    assert [pool["name"] for pool in found.config["vendors"]["rdma"]["pools"]] == ["rdma/good"]
    assert found.notes[0].startswith("rdma/bad is left out: configList[0].")
    assert "configList[1].other is left out: the plugin does not know it" in found.notes


def test_no_rule_keeps_out_the_rest_where_another_takes_everything():
    """Defect: it was never reached, which `config check` told of a file that devherd had written itself."""
    found = only(json.dumps({"resourceList": [{"resourceName": "all", "selectors": {"isRdma": True}}]}))
    assert found.config["resources"] == [{"match": {"vendor": "rdma"}, "name": "intel.com/all"}]


def test_both_files_of_the_network_operators_object_are_read():
    """NicClusterPolicy holds each plugin's file as JSON."""
    part = {"image": "x", "config": json.dumps({"configList": [{"resourceName": "a", "devices": ["ib0"]}]})}
    other = {"config": json.dumps({"resourceList": [{"resourceName": "b", "selectors": {"isRdma": True}}]})}
    spec = {"ofedDriver": {"version": "25.07"}, "rdmaSharedDevicePlugin": part, "sriovDevicePlugin": other}
    item = {"apiVersion": "mellanox.com/v1alpha1", "kind": "NicClusterPolicy", "spec": spec}
    shared, sriov = import_text(yaml.safe_dump(item), "the text", None)
    assert (shared.plugin, sriov.plugin) == ("rdma-shared", "sriov")
    assert shared.config["vendors"]["rdma"]["pools"][0]["name"] == "rdma/a"
    assert "ofedDriver, sriovDevicePlugin left out: parts of the operator beside this plugin" in shared.notes
    assert sriov.config["resources"][0]["name"] == "intel.com/b"


ALL_NICS = {
    "resourcePrefix": "dpdk.org",
    "resourceName": "nic",
    "selectors": [
        {"vendors": ["15b3"], "devices": ["1016"], "drivers": ["mlx5_core"], "isRdma": True},
        {"vendors": ["15b3"], "devices": ["1018"], "drivers": ["mlx5_core"], "isRdma": True},
        {"vendors": ["8086"], "devices": ["154c"], "drivers": ["vfio-pci"]},
    ],
}
"""`docs/dpdk/configMap-all-nics.yaml` of sriov-network-device-plugin."""
OURS = "resourceList[0].selectors[0], resourceList[0].selectors[1]"


@pytest.mark.parametrize(
    ("entries", "note"),
    [
        (
            [ALL_NICS],
            f"delete {OURS} from its file, and give the rest of resourceList[0] another resourceName",
        ),
        (
            [
                {"resourceName": "net", "selectors": {"drivers": ["vfio-pci"]}},
                {"resourceName": "r", "selectors": {"isRdma": True}},
            ],
            "delete resourceList[1] from its file",
        ),
    ],
)
def test_where_the_sriov_plugin_stays_the_entries_that_its_file_must_lose_are_named(entries, note):
    """Defect: followed, two plugins served one name, and displaced each other."""
    found = only(json.dumps({"resourceList": entries}))
    end = ": two plugins of one resource name displace each other"
    assert f"where the SR-IOV plugin stays, {note}{end}" in found.notes
    assert any(" is left out: only its RDMA devices are served" in each for each in found.notes)


@pytest.mark.parametrize("selectors", [{"isRdma": True}, {"drivers": ["vfio-pci"]}])
def test_a_plugin_that_does_not_stay_or_keeps_all_is_told_to_delete_nothing(selectors):
    """Its file is of no use any more, or is right as it is."""
    found = only(json.dumps({"resourceList": [{"resourceName": "a", "selectors": selectors}]}))
    assert not any("delete" in each for each in found.notes)


def test_a_link_type_that_the_shared_plugin_never_matches_gives_no_pool():
    """Defect: the file was refused at a line that it does not have."""
    never = {"resourceName": "never", "rdmaHcaMax": 1, "selectors": {"linkTypes": ["ethernet"]}}
    both = {"resourceName": "both", "rdmaHcaMax": 1, "selectors": {"linkTypes": ["ether", "ethernet"]}}
    found = only(json.dumps({"configList": [never, both]}))
    [pool] = found.config["vendors"]["rdma"]["pools"]
    assert (pool["name"], pool["selectors"]) == ("rdma/both", {"link_types": ["ether"]})
    assert "rdma/never is left out: it has no device in the plugin either" in found.notes
    assert not found.is_whole
