"""Rules that are allowed and match nothing: `devherd config check` says so."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Scanner
from devherd.config import checks
from devherd.config.checks import conflicts, warnings_of
from devherd.config.loader import load, resolve
from devherd.config.model import Config, Vendors
from devherd.config.resolved import fits
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode


def warnings_about(*selectors, **more):
    """The warnings about rules with these selectors."""
    return warnings({"resources": [{"match": selector} for selector in selectors], **more})


def warnings(content):
    """The warnings about a configuration."""
    return [*map(str, warnings_of(Config.model_validate(content)))]


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
def test_a_selector_that_can_match_gives_no_warning(selector):
    """Whether such a device is there is another question."""
    assert warnings_about(selector) == []


@pytest.mark.parametrize(
    ("selector", "place", "doubt"),
    [
        (
            {"pci_address": "81:00.0"},
            "pci_address",
            "`81:00.0` can never match — values look like `0000:81:00.0`, in full and lower case",
        ),
        (
            {"exclude": [{"id": "x"}, {"vendor_id": "8086"}]},
            "exclude[1].vendor_id",
            "`8086` can never match — values look like `0x8086`, in full and lower case",
        ),
    ],
)
def test_a_selector_that_cannot_match_gives_a_warning_with_a_suggestion(selector, place, doubt):
    """The key path, what has no effect, and what to do."""
    (told,) = warnings_about(selector)
    assert told.startswith(f"resources[0].match.{place}: {doubt}")


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        ({"pci_adress": "0000:81:00.0"}, "pci_adress: no vendor has this fact — did you mean `pci_address`"),
        (
            {"vendor": "simulated", "afu_id": "*"},
            "afu_id: devices of simulated do not have this fact — choose from `vendor`, `id`, `resource_name`",
        ),
        (
            {"vendor": "intel-fgpa"},
            "vendor: no vendor matches `intel_fgpa` — did you mean `intel_fpga` or `intel_gpu`?",
        ),
    ],
)
def test_a_selector_that_names_what_does_not_exist_is_an_error_with_a_suggestion(selector, error):
    """Such a rule would be without effect, and resources would vanish."""
    (told,) = conflicts(Config.model_validate({"resources": [{"match": selector}]}))
    assert str(told).startswith(f"resources[0].match.{error}")


def test_a_rule_behind_one_that_matches_everything_gives_a_warning():
    """The first rule that matches decides."""
    assert warnings_about({"exclude": [{"id": "a"}]}, {}, {"id": "b"}) == [
        (
            "resources[2]: never reached: resources[1] matches every device that it matches — move it before that rule,"
            " or remove it"
        )
    ]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"vendor": "nvidia"}, {"vendor": "nvidia", "index": "0"}),
        ({"vendor": "*fpga"}, {"vendor": ["intel-fpga", "xilinx_fpga"], "id": "*"}),
        ({"model": "*"}, {"model": "*H200*"}),
        ({"pci_address": ["0000:3b:*", "0000:5e:*"]}, {"pci_address": ["0000:5e:00.?", "0000:3b:00.0"]}),
    ],
)
def test_a_rule_behind_a_wider_one_gives_a_warning(first, later):
    """Only a rule that matches everything was found."""
    [told] = warnings_about(first, {"resource_name": "a.example/x"}, later)
    assert told.startswith("resources[2]: never reached: resources[0] matches every device that it matches — ")


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"vendor": "nvidia", "index": "0"}, {"vendor": "nvidia"}),
        ({"vendor": "nvidia"}, {"vendor": ["nvidia", "amd"]}),
        ({"vendor": "nvidia", "exclude": [{"index": "0"}]}, {"vendor": "nvidia", "index": "0"}),
        ({"serial": "?"}, {"serial": "*"}),
        ({"serial": "*"}, {"vendor": "amd"}),
        ({"serial": "a?b*"}, {"serial": "a?b?"}),
    ],
)
def test_a_rule_behind_one_that_leaves_it_some_devices_gives_no_warning(first, later):
    """A fact that a device may lack, an exception, another glob."""
    assert warnings_about(first, later) == []


AT_ONCE = "`sharing.replicas` lets several containers hold the device at once"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("advertise: false, name: a.b/c", ["name: no effect: `advertise: false` leaves the devices out — remove it"]),
        (
            "advertise: false, sharing: {replicas: 2}, preferred: packed",
            [
                "sharing: no effect: `advertise: false` leaves the devices out — remove it",
                "preferred: no effect: `advertise: false` leaves the devices out — remove it",
            ],
        ),
        (
            "sharing: {rename: a.b/c}",
            ["sharing.rename: no effect: `replicas` is 1, so nothing is shared — give `replicas`"],
        ),
        (
            "sharing: {strategy: mps}",
            ["sharing.strategy: no effect: `replicas` is 1, so nothing is shared — give `replicas`"],
        ),
        (
            "name: a.b/c, sharing: {replicas: 2, rename: a.b/d}",
            ["name: no effect: `sharing.rename` is the name of what is shared — remove one"],
        ),
        ("name: a.b/c, sharing: {replicas: 2}, preferred: none", []),
        ("advertise: false, match: {vendor: amd}", []),
        (
            "advertise: false, pre_start: {unhealthy: refuse}",
            ["pre_start: no effect: `advertise: false` leaves the devices out — remove it"],
        ),
        (
            "sharing: {replicas: 2}, pre_start: {occupied: wait}",
            [
                f"pre_start.occupied: no effect: {AT_ONCE} — remove one of them",
            ],
        ),
    ],
)
def test_what_another_key_of_a_rule_overrides_gives_a_warning(rule, told):
    """It was ignored without a word."""
    assert warnings(yaml.safe_load(f"resources: [{{{rule}}}]")) == [f"resources[0].{each}" for each in told]


SILENT = "it counts as silent between two runs"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("timeout: 5s", ["timeout: `timeout` has no effect without `interval` — remove it, or add `interval`"]),
        ("interval: 1m, timeout: 5s, max_age: 61s", []),
        (
            "interval: 1m, max_age: 1m, on_silence: drop",
            [f"max_age: `1m` is not longer than `interval`: {SILENT} — give more than `1m`, or remove it"],
        ),
    ],
)
def test_times_of_a_program_that_cannot_be_meant_give_a_warning(keys, told):
    """A limit for a program that never ends; findings that are dropped after each run and raised by the next one."""
    text = f"health: {{external: [{{name: a, match: {{vendor: amd}}, command: [/a], {keys}}}]}}"

    assert warnings(yaml.safe_load(text)) == [f"health.external[0].{each}" for each in told]


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({}, 10.0),
        ({"interval": "10s"}, 9.0),
        ({"interval": "11s"}, pytest.approx(9.9)),
        ({"interval": "1m"}, 10.0),
        ({"interval": "1m", "timeout": "30s"}, 30.0),
    ],
)
def test_the_shortest_interval_needs_no_timeout(keys, seconds):
    """The default of the one was refused with the least of the other."""
    external = {"name": "a", "match": {"vendor": "amd"}, "command": ["/a"]} | keys
    config = resolve(Config.model_validate({"health": {"external": [external]}}))

    assert config.health.external[0].timeout_seconds == seconds


def test_a_warning_has_its_place_in_the_file(tmp_path):
    """In `run`, in `status` and on the page as in config check."""
    path = tmp_path / "config.yaml"
    path.write_text("scan: {period: 5s}\nresources:\n  - {}\n  - match: {vendor: amd}\n    name: a.b/c\n")
    [told] = resolve(load({"config": str(path)}, {})).warnings

    assert told.startswith(f"{path}:4:5: resources[1]: never reached: ")


@pytest.mark.parametrize(
    "glob", ["0000:3B:00.0", "3b:00.0", "0000:*:00.8", "0000-*", "", "0000:81:00.0 ", "[G-Z]*", "*["]
)
def test_globs_that_no_pci_address_fits(glob):
    """Upper case, no domain, a function above 7 (16 are told apart by form alone, so 8 fits), another separator."""
    assert checks.can_match("pci_address", glob) == (glob == "0000:*:00.8")


@given(st.sampled_from(sorted(checks.FACT_EXAMPLES)), st.data())
def test_a_glob_that_matches_some_value_gives_no_warning(fact, data):
    """Made of a value by putting wildcards in its place, here and there."""
    value = "".join(
        data.draw(st.sampled_from("0123456789abcdef")) if each in "0123456789abcdef" and place > 1 else each
        for place, each in enumerate(data.draw(st.sampled_from(checks.FACT_EXAMPLES[fact])))
    )
    wild = st.sampled_from(["", "?", "*", "[!g]", "[0-9a-f:.x]"])
    glob = "".join(data.draw(wild) or each for each in value)
    assert fits(Config.model_validate({"resources": [{"match": {fact: glob}}]}).resources[0].match, {fact: value})
    assert checks.can_match(fact, glob)


def test_every_fact_of_every_simulated_device_is_known(tmp_path):
    """A vendor that lists a new one adds its name to its row in rust/src/vendors/table.rs."""
    assert set(checks.FACTS_OF_VENDOR) == {*Vendors.model_fields, "classes", "generic", "simulated"}
    generic = [{"paths": [{"path": "/dev/kvm"}]}, {"usb": [{"vendor": "0403", "product": "6001"}]}]
    for name, preset in PRESETS.items():
        SimulatedNode.create(tmp_path / name, preset.spec)
        for mode in ("af", "region", "regiondevel"):
            config = Config.model_validate(
                {
                    "host_root": tmp_path / name,
                    "vendors": {"intel_fpga": {"mode": mode}},
                    "generic": [{"name": "a.example/x", "groups": generic}],
                    "simulated": [{"name": "a.example/y", "count": 1}],
                }
            )
            for device in Scanner(str(tmp_path / name), config.native_json()).scan().devices:
                known = checks.FACTS_OF_VENDOR[device.vendor.replace("-", "_")]
                assert set(device.attributes) <= set(known), (name, device.vendor)
                for fact, value in device.attributes.items():
                    assert checks.can_match(fact, value), (fact, value)


def test_a_strategy_that_another_overrides_gives_a_warning():
    """N30: of `envvar` and `volume-mounts` together the second sets the first's variable, as in NVIDIA's plugin."""
    told = [
        warnings({"vendors": {"nvidia": {"device_list_strategy": strategies}}})
        for strategies in (["volume-mounts", "envvar"], ["envvar", "cdi-cri"], ["volume-mounts"])
    ]

    assert [len(each) for each in told] == [1, 0, 0]
    assert told[0][0].startswith(
        "vendors.nvidia.device_list_strategy: `envvar` has no effect together with `volume-mounts`"
    )


def test_a_generic_group_that_repeats_another_gives_a_warning_with_both_places():
    """Its devices would have the ids of the first one's, which alone are served; another name is another resource."""
    group, other = {"paths": [{"path": "/dev/kvm"}]}, {"paths": [{"path": "/dev/fuse"}]}
    generic = [
        {"name": "a.example/x", "groups": [group, other]},
        {"name": "a.example/y", "groups": [group]},
        {"name": "a.example/x", "groups": [{**group, "count": 3}]},
    ]

    assert warnings_about(generic=generic) == [
        (
            "generic[2].groups[0]: the same devices as generic[0].groups[0] under the same name — remove it,"
            " and raise `count` there"
        )
    ]
