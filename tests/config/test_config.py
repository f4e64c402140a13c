"""The configuration: precedence, defaults, and one clear line for every error."""

import os
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devherd import config
from devherd.config import Config, ConfigError
from devherd.errors import UsageError

CONTRACT_EXAMPLE = """
scan: {period: 5s, events: true, probe_timeout: 2s}
health:
  poll: 1s
  recover_after: 3
  breaker: on
  flapping: on
  rules: []
vendors:
  intel_fpga: {mode: af}
  nvidia: {mig_strategy: none, device_list_strategy: [envvar], device_id_strategy: uuid, pass_device_specs: false}
  amd: {naming: single}
  intel_gpu: {shared_devices: 1, monitoring: false}
  xilinx_fpga: {}
  rdma: {}
resources:
  - match: {vendor: nvidia, model: "*H200*", exclude: [{pci_address: "0000:3b:00.0"}]}
    name: nvidia.com/h200
    sharing: {replicas: 4, rename: nvidia.com/h200.shared, fail_requests_greater_than_one: true}
    preferred: aligned
generic:
  - {name: devic.es/kvm, groups: [{count: 10, paths: [{path: /dev/kvm}]}]}
simulated:
  - {name: example.com/gpu, count: 10}
"""


def load_text(tmp_path: Path, text: str, **options: str) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return config.load({"config": str(path), **options}, {})


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text)
    return caught.value.problems


def test_an_empty_file_is_a_valid_configuration_with_the_documented_defaults(tmp_path):
    """An empty file serves every device found, like the vendor plugins would."""
    loaded = load_text(tmp_path, "")

    assert loaded.model_dump() == Config().model_dump()
    assert (loaded.scan.period, loaded.scan.probe_timeout, loaded.health.poll) == (5.0, 2.0, 1.0)
    assert loaded.listen == "127.0.0.1:9478"


def test_the_example_of_the_documentation_is_valid_and_fits_its_own_json_schema(tmp_path):
    """`config-schema` describes what `check-config` accepts."""
    load_text(tmp_path, CONTRACT_EXAMPLE)

    jsonschema.validate(yaml.safe_load(CONTRACT_EXAMPLE), Config.model_json_schema())


def test_an_option_wins_over_the_environment_which_wins_over_the_file(tmp_path):
    """Precedence: option, environment, file, default."""
    path = tmp_path / "config.yaml"
    path.write_text("run_dir: /file\nkubelet_dir: /file\nhost_root: /file\n")
    environ = {"DEVHERD_CONFIG": str(path), "DEVHERD_RUN_DIR": "/environment", "DEVHERD_KUBELET_DIR": "/environment"}

    settings = config.load({"run_dir": "/option"}, environ).settings()

    assert (settings.run_dir, settings.kubelet_dir, settings.host_root) == (
        Path("/option"),
        Path("/environment"),
        Path("/file"),
    )


def test_a_reload_keeps_what_the_command_line_gave(tmp_path):
    """A changed file must not undo an option."""
    path = tmp_path / "config.yaml"
    path.write_text("listen: 127.0.0.1:1\n")
    settings = config.load({"config": str(path), "listen": "127.0.0.1:2"}, {}).settings()
    path.write_text("listen: 127.0.0.1:3\nscan: {period: 9s}\n")

    reloaded = config.reload(settings, {})

    assert (reloaded.listen, reloaded.scan.period) == ("127.0.0.1:2", 9.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("scna: {}", "scna: unknown key; did you mean `scan`?"),
        ("scan: {perod: 5s}", "scan.perod: unknown key; did you mean `period`?"),
        ("scan: {period: fast}", "scan.period: 'fast' is not a duration; write it like `5s`, `250ms` or `1m30s`"),
        ("scan: {period: 0}", "scan.period: input should be greater than or equal to 0.01"),
        ("scan: {period: .inf}", "scan.period: input should be less than or equal to 2678400"),
        ("health: {poll: 99999h}", "health.poll: input should be less than or equal to 2678400"),
        ("host_root: ''", "host_root: a path cannot be empty"),
        ('host_root: "a\\0b"', "host_root: a path cannot contain a NUL character"),
        ("cdi_dir: /../x", "cdi_dir: '/../x' is not an absolute host path; start it with `/`, without `..`"),
        ("listen: '[zzz]:80'", None),
        ("listen: '127.0.0.1:٣'", None),
        ("simulated: [{name: a.b/c, count: true}]", "simulated[0].count: input should be a valid integer"),
        ("generic: [{name: a.b/c, groups: [{paths: [{path: /x, permissions: rrr}]}]}]", None),
        ("generic: [{name: a.b/c, groups: [{paths: [{path: /x, mountPath: rel}]}]}]", None),
        ("[" * 100_000, "line 1, column 51: nested deeper than 50 levels"),
        ("log_level: a\x01b", "character 12: control characters are not allowed"),
        (
            "scan: {probe_timeout: 10s}",
            (
                "scan.probe_timeout: 10 s is too long: a scanner that is silent for 10 s is replaced, and a probe may"
                " take half of that; use at most `5s`"
            ),
        ),
        (
            "simulated: [{name: a.b/x, count: 1}, {name: a.b/y, count: 1}, {name: a.b/x, count: 2}]",
            "simulated[2].name: `a.b/x` is already defined in simulated[0]; merge the two entries or rename one",
        ),
        ("scan: {period: true}", "scan.period: True is not a duration; write it like `5s`, `250ms` or `1m30s`"),
        ("health: {recover_after: 0}", "health.recover_after: input should be greater than or equal to 1"),
        (
            "health: {kernel_log: {rules: [{name: mine, contains: nvme, pattern: '('}]}}",
            "health.kernel_log.rules[0]: rule mine: its pattern: unclosed group",
        ),
        (
            "health: {kernel_log: {rules: [{name: drm-wedged, contains: nvme, pattern: x}]}}",
            "health.kernel_log: rules: there is another rule drm-wedged: give it a name of its own",
        ),
        (
            "health: {kernel_log: {optional: [mlx5]}}",
            (
                "health.kernel_log: optional: no rule mlx5: there are mlx5-cable-unplugged, mlx5-command-timeout,"
                " mlx5-health-compromised, mlx5-high-temperature, mlx5-insufficient-power, mlx5-register-access,"
                " mlx5-transmit-timeout, mlx5-unrecoverable"
            ),
        ),
        ("health: {kernel_log: {rules: [{name: a, contains: nvm, pattern: x}]}}", None),
        (
            "vendors: {intel_fpga: {mode: afu}}",
            "vendors.intel_fpga.mode: input should be 'af', 'region' or 'regiondevel'",
        ),
        (
            "vendors: {intel_fpga: {enabled: maybe}}",
            "vendors.intel_fpga.enabled: input should be 'auto', True or False",
        ),
        (
            "vendors: {nvidia: {driver_root: run}}",
            "vendors.nvidia.driver_root: 'run' is not an absolute host path; start it with `/`, without `..`",
        ),
        (
            "listen: nine",
            "listen: 'nine' is not ADDRESS:PORT; write it like `127.0.0.1:9478`, or leave it empty for no exporter",
        ),
        (
            "cdi_dir: var/run/cdi",
            "cdi_dir: 'var/run/cdi' is not an absolute host path; start it with `/`, without `..`",
        ),
        (
            "health: {external: [{name: a, match: {id: x}}]}",
            "health.external[0]: it needs either `command` or `file`, and not both",
        ),
        (
            "health: {external: [{name: a, match: {id: x}, command: [check]}]}",
            "health.external[0].command: 'check' is not an absolute path; a program is not looked for",
        ),
        (
            "health: {external: [{name: a, match: {}, file: /run/a}]}",
            "health.external[0].match: it names no device; give a fact like `{vendor: nvidia}`, or `{id: '*'}`",
        ),
        (
            "health: {external: [{name: a, match: {id: x}, command: [/a], interval: 1s}]}",
            "health.external[0].interval: input should be greater than or equal to 10",
        ),
        (
            "health: {external: [{name: a, match: {id: x}, command: [/a], interval: 10s, timeout: 10s}]}",
            "health.external[0]: `timeout` must be shorter than `interval`",
        ),
        (
            "health: {external: [{name: a, match: {id: x}, file: /run/a, interval: 10s}]}",
            "health.external[0]: `interval` is for `command`: a file is read when it changes",
        ),
        (
            "health: {external: [{name: a, match: {id: x}, file: /a}, {name: a, match: {id: x}, file: /b}]}",
            "health.external[1].name: `a` is already that of health.external[0]; rename one",
        ),
        ("health: {external: [{name: A/b, match: {id: x}, file: /a}]}", None),
        ("log_level: loud", "log_level: input should be 'debug', 'info', 'warning' or 'error'"),
        ("simulated: [{name: gpu, count: 1}]", None),
        (
            "simulated: [{name: example.com/gpu, count: -1}]",
            "simulated[0].count: input should be greater than or equal to 0",
        ),
        (
            "generic: [{name: a.b/c, groups: []}]",
            "generic[0].groups: List should have at least 1 item after validation, not 0",
        ),
        (
            "generic: [{name: a.b/c, groups: [{}]}]",
            "generic[0].groups[0]: a group needs either `paths` or `usb`, and not both",
        ),
        (
            "generic: [{name: a.b/c, groups: [{separate: true, paths: [{path: /dev/x}]}]}]",
            "generic[0].groups[0]: `separate` is for `usb`: every match of a path is a device of its own already",
        ),
        (
            "vendors: {rdma: {mode: shared}}",
            "vendors.rdma: `mode: shared` and `pools` go together: give both or neither",
        ),
        (
            "vendors: {rdma: {mode: sriov, shared_devices: 2}}",
            "vendors.rdma: `shared_devices` is an option of `mode: device`; a pool has `rdma_hca_max`",
        ),
        (
            "vendors: {rdma: {mode: shared, pools: [{name: a.b/c, rdma_hca_max: 1, selectors: {}}]}}",
            "vendors.rdma.pools[0].selectors: give one selector at least",
        ),
        (
            "vendors: {rdma: {mode: shared, pools: [&a {name: a/c, rdma_hca_max: 1, selectors: {drivers: [x]}}, *a]}}",
            "vendors.rdma: the names of `pools` must differ",
        ),
        ("generic: [{name: a.b/c, groups: [{usb: [{vendor: xyz, product: '1'}]}]}]", None),
        ("generic: [{name: a.b/c, groups: [{paths: [{path: dev/kvm}]}]}]", None),
        ("resources: [{match: {exlude: 1, model: {}}}]", None),
        (
            "resources: [{sharing: {strategy: mps, replicas: 2}}]",
            "resources[0].sharing.strategy: MPS needs `vendors.nvidia.mps_root`, the directory of its control daemon",
        ),
        (
            "vendors: {nvidia: {mps_root: /m, mig_strategy: mixed}}\nresources: [sharing: {replicas: 9,strategy: mps}]",
            "resources[0].sharing.strategy: MPS cannot share MIG devices, but `vendors.nvidia.mig_strategy` is `mixed`",
        ),
        (
            "{vendors: {nvidia: {mps_root: /mps}}, resources: [{}, {sharing: {strategy: mps, replicas: 49}}]}",
            "resources[1].sharing.replicas: MPS serves at most 48 clients per GPU",
        ),
        (
            "resources: [{sharing: {strategy: mig}}]",
            "resources[0].sharing.strategy: input should be 'time_slicing' or 'mps'",
        ),
        (
            "health: {rules: [{reason: link-degraded}]}",
            "health.rules[0]: a rule needs `action`, `after` or `hold`: without them it changes nothing",
        ),
        (
            "health: {rules: [{source: pci-lnk, action: ignore}]}",
            "health.rules[0].source: no source is called `pci-lnk`; did you mean `pci-link`?",
        ),
        (
            "health: {rules: [{source: pci-link, reason: link-degrade, action: unhealthy}]}",
            "health.rules[0].reason: `link-degrade` is no reason of source `pci-link`; did you mean `link-degraded`?",
        ),
        (
            "health: {rules: [{reason: on-fire, action: warn}]}",
            None,
        ),
        (
            "health: {rules: [{reason: link-degraded, action: panic}]}",
            "health.rules[0].action: input should be 'unhealthy', 'warn' or 'ignore'",
        ),
        (
            "health: {rules: [{resaon: link-degraded, action: warn}]}",
            "health.rules[0].resaon: unknown key; did you mean `reason`?",
        ),
        ("[1, 2]", "the file must be a mapping of keys, like `scan: {period: 5s}`"),
        ("scan: {period: 5s", "line 2, column 1: did not find expected ',' or '}'"),
        ("scan: {period: 5s}\nscan: {}\n", "line 2, column 1: the key `scan` is given twice"),
    ],
)
def test_each_wrong_configuration_gives_one_line_that_names_the_key(tmp_path, text, problem):
    """A user reads which key is wrong and what to write instead, never a traceback."""
    found = problems_of(tmp_path, text)

    assert len(found) == 1
    assert "\n" not in found[0]
    if problem is not None:
        assert found == [problem]


def test_all_errors_of_a_file_are_found_at_once(tmp_path):
    """Nobody should have to fix one error to see the next."""
    found = problems_of(tmp_path, "scan: {period: x}\nhealth: {pol: 1s}\nresources: [{name: bad}]\n")

    assert [problem.split(":")[0] for problem in found] == ["scan.period", "health.pol", "resources[0].name"]


def test_a_wrong_option_is_blamed_on_the_option_not_on_the_file(tmp_path):
    """The line names what the user typed."""
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, "", listen="x")

    assert caught.value.problems[0].startswith("--listen: ")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path, content):
    """Missing, or no text at all."""
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(UsageError):
        config.load({"config": str(path)}, {})


def test_usb_ids_are_hexadecimal_also_when_yaml_reads_a_number(tmp_path):
    """`7523` without quotes means the digits 7523, as in generic-device-plugin's --device flag."""
    for written, meant in [("7523", "7523"), ("0403", "0403"), ("0x10", "0010"), ("'1a86'", "1a86"), ("16", "0016")]:
        loaded = load_text(
            tmp_path, f"generic: [{{name: a.b/c, groups: [{{usb: [{{vendor: {written}, product: 1}}]}}]}}]"
        )
        assert loaded.generic[0].groups[0].usb[0].vendor == meant


def test_what_generic_device_plugin_takes_for_unset_is_its_default_c2(tmp_path):
    """No count, limit or permissions, and blanks round a path; an empty serial number is any."""
    unset = "{count: 0, paths: [{path: ' /dev/x ', mountPath: ' /dev/y ', limit: 0, permissions: ''}]}"
    plain = "{paths: [{path: /dev/x, mountPath: /dev/y}]}"
    first, second = [
        load_text(tmp_path, f"generic: [{{name: a.b/c, groups: [{group}]}}]").generic for group in (unset, plain)
    ]
    assert first == second


def test_pci_ids_of_pools_are_hexadecimal_also_when_yaml_reads_a_number(tmp_path):
    """As the shared RDMA plugin writes them, `1017`, and as this file does elsewhere, `0x1017`."""
    pools = "[{name: a.b/c, rdma_hca_max: 1, selectors: {vendors: [15B3], device_ids: [1017, '0x1018']}}]"
    [pool] = load_text(tmp_path, f"vendors: {{rdma: {{mode: shared, pools: {pools}}}}}").vendors.rdma.pools
    assert (pool.selectors.vendors, pool.selectors.device_ids) == (["15b3"], ["1017", "1018"])


def test_an_empty_variable_is_as_good_as_none(tmp_path):
    """A service unit with an empty variable must not run in its working directory; an empty `listen` means off."""
    path = tmp_path / "config.yaml"
    path.write_text("run_dir: /file\n")
    environ = {"DEVHERD_CONFIG": str(path), "DEVHERD_RUN_DIR": "", "DEVHERD_HOST_ROOT": "", "DEVHERD_LISTEN": ""}

    settings = config.load({}, environ).settings()

    assert (settings.run_dir, settings.host_root, settings.listen) == (Path("/file"), Path("/"), "")


def test_yamls_merge_keys_work(tmp_path):
    """Ordinary YAML; a key may then stand in both mappings."""
    loaded = load_text(tmp_path, "simulated:\n- &x {name: a.b/c, count: 1}\n- {<<: *x, name: a.b/d}\n")

    assert [(one.name, one.count) for one in loaded.simulated] == [("a.b/c", 1), ("a.b/d", 1)]


def test_a_fifo_in_place_of_the_file_does_not_hang(tmp_path):
    """A running instance reads the file again at SIGHUP, whatever it has become."""
    path = tmp_path / "config.yaml"
    os.mkfifo(path)

    with pytest.raises(UsageError, match="not a regular file"):
        config.load({"config": str(path)}, {})


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours, minutes, seconds, milliseconds):
    """`1h2m3s4ms` is what it says, in seconds."""
    parsed = config.parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms")

    assert parsed == pytest.approx(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)


def test_a_file_that_spells_out_the_defaults_of_every_section_says_no_more_than_its_rules(tmp_path):
    """Whoever writes a default down gets what he would get without it."""
    spelt_out = load_text(tmp_path, CONTRACT_EXAMPLE)
    told = "".join(CONTRACT_EXAMPLE.partition("resources:")[1:])

    assert spelt_out.model_dump() == load_text(tmp_path, told).model_dump()
    assert spelt_out.native_json() == load_text(tmp_path, told).native_json()
