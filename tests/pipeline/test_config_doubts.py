"""Rules that are allowed and match nothing: `devherd check-config` says so."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Scanner
from devherd.config import facts
from devherd.config.doubts import doubts
from devherd.config.model import Config, Vendors
from devherd.scanner.resources import matches
from devherd.sim.node.presets import PRESETS
from devherd.sim.node.simulated_node import SimulatedNode


def doubts_of(*selectors, **more):
    """The doubts about rules with these selectors."""
    return list(doubts(Config.model_validate({"resources": [{"match": selector} for selector in selectors], **more})))


@pytest.mark.parametrize(
    "selector",
    [
        {"vendor": "intel_fpga", "pci_address": "0000:81:*"},
        {"vendor": "intel-fpga", "afu_id": ["d842*", "f7df405cbd7acf7222f144b0b93acd18"]},
        {"vendor": "*", "resource_name": "devic.es/*", "id": "?*"},
        {"path": "/dev/kvm", "vendor_id": "0x8086", "pci_class": "0x12????"},
        {"pci_address": "[0-9]*:[!8]?:00.[01]", "exclude": [{"pci_address": "10000:*.7"}]},
        {"serial": "ANYTHING", "numa_node": "0"},
    ],
)
def test_what_can_match_is_not_doubted(selector):
    """Whether such a device is there is another question."""
    assert doubts_of(selector) == []


@pytest.mark.parametrize(
    ("selector", "place", "doubt"),
    [
        ({"pci_adress": "0000:81:00.0"}, "pci_adress", "no vendor has this fact — did you mean `pci_address`,"),
        (
            {"vendor": "simulated", "afu_id": "*"},
            "afu_id",
            "no device of simulated has this fact — there are `vendor`, `id`, `resource_name`",
        ),
        ({"vendor": "intel-fgpa"}, "vendor", "no vendor fits `intel_fgpa` — did you mean `intel_fpga`?"),
        (
            {"pci_address": "81:00.0"},
            "pci_address",
            "no value can fit `81:00.0` — values are like `0000:81:00.0`, whole and in lower case",
        ),
        (
            {"exclude": [{"id": "x"}, {"vendor_id": "8086"}]},
            "exclude[1].vendor_id",
            "no value can fit `8086` — values are like `0x8086`, whole and in lower case",
        ),
    ],
)
def test_what_cannot_match_is_told_with_what_was_perhaps_meant(selector, place, doubt):
    """The key path, what cannot be, and what to do."""
    (told,) = doubts_of(selector)
    assert told.startswith(f"resources[0].match.{place}: {doubt}")


def test_a_rule_behind_one_that_matches_everything_is_told():
    """The first rule that matches decides."""
    assert doubts_of({"exclude": [{"id": "a"}]}, {}, {"id": "b"}) == [
        "resources[2]: never used, for resources[1] matches every device before it — put the narrower rule first"
    ]


@pytest.mark.parametrize(
    "glob", ["0000:3B:00.0", "3b:00.0", "0000:*:00.8", "0000-*", "", "0000:81:00.0 ", "[G-Z]*", "*["]
)
def test_globs_that_no_pci_address_fits(glob):
    """Upper case, no domain, a function above 7 (16 are told apart by form alone, so 8 fits), another separator."""
    assert facts.can_match("pci_address", glob) == (glob == "0000:*:00.8")


@given(st.sampled_from(sorted(facts.EXAMPLES)), st.data())
def test_a_glob_that_matches_some_value_is_never_doubted(fact, data):
    """Made of a value by putting wildcards in its place, here and there."""
    value = "".join(
        data.draw(st.sampled_from("0123456789abcdef")) if each in "0123456789abcdef" and place > 1 else each
        for place, each in enumerate(data.draw(st.sampled_from(facts.EXAMPLES[fact])))
    )
    wild = st.sampled_from(["", "?", "*", "[!g]", "[0-9a-f:.x]"])
    glob = "".join(data.draw(wild) or each for each in value)
    assert matches(Config.model_validate({"resources": [{"match": {fact: glob}}]}).resources[0].match, {fact: value})
    assert facts.can_match(fact, glob)


def test_every_fact_of_every_simulated_device_is_known(tmp_path):
    """A vendor that notes a new one adds its name to config/facts.py."""
    assert set(facts.OF_VENDOR) == {*Vendors.model_fields, "generic", "simulated"}
    generic = [{"paths": [{"path": "/dev/kvm"}]}, {"usb": [{"vendor": "0403", "product": "6001"}]}]
    for name, preset in PRESETS.items():
        SimulatedNode.create(tmp_path / name, preset.spec)
        for mode in ("af", "region", "regiondevel"):
            config = Config.model_validate(
                {
                    "vendors": {"intel_fpga": {"mode": mode}},
                    "generic": [{"name": "a.example/x", "groups": generic}],
                    "simulated": [{"name": "a.example/y", "count": 1}],
                }
            )
            for device in Scanner(str(tmp_path / name), json.dumps(json.loads(config.native_json()))).scan().devices:
                known = facts.OF_VENDOR[device.vendor.replace("-", "_")]
                assert set(device.attributes) <= set(known), (name, device.vendor)
                for fact, value in device.attributes.items():
                    assert facts.can_match(fact, value), (fact, value)


def test_a_strategy_that_another_overrules_is_told():
    """N30: of `envvar` and `volume-mounts` together the second sets the first's variable, as in NVIDIA's plugin."""
    told = [
        list(doubts(Config.model_validate({"vendors": {"nvidia": {"device_list_strategy": strategies}}})))
        for strategies in (["volume-mounts", "envvar"], ["envvar", "cdi-cri"], ["volume-mounts"])
    ]

    assert [len(each) for each in told] == [1, 0, 0]
    assert told[0][0].startswith("vendors.nvidia.device_list_strategy: `envvar` has no effect beside `volume-mounts`")
