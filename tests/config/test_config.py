"""The configuration: precedence, defaults, and one clear line for every error."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devherd.config.loader import load, reload
from devherd.config.model import Config
from devherd.config.values import parse_duration

CONTRACT_EXAMPLE = """
scan: {events: true, probe_timeout: 2s}
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
    return load({"config": str(path), **options}, {})


def test_an_empty_file_is_a_valid_configuration_with_the_documented_defaults(tmp_path):
    """An empty file serves every device found, like the vendor plugins would."""
    loaded = load_text(tmp_path, "")

    assert loaded.model_dump() == Config().model_dump()
    assert (loaded.scan.period, loaded.scan.probe_timeout, loaded.health.poll) == (None, 2.0, 1.0)
    assert loaded.listen == "127.0.0.1:9478"


def test_the_example_of_the_documentation_is_valid_and_fits_its_own_json_schema(tmp_path):
    """`config schema` describes what `config check` accepts."""
    load_text(tmp_path, CONTRACT_EXAMPLE)

    jsonschema.validate(yaml.safe_load(CONTRACT_EXAMPLE), Config.model_json_schema())


def test_an_option_wins_over_the_environment_which_wins_over_the_file(tmp_path):
    """Precedence: option, environment, file, default."""
    path = tmp_path / "config.yaml"
    path.write_text("run_dir: /file\nkubelet_dir: /file\nhost_root: /file\n")
    environ = {"DEVHERD_CONFIG": str(path), "DEVHERD_RUN_DIR": "/environment", "DEVHERD_KUBELET_DIR": "/environment"}

    settings = load({"run_dir": "/option"}, environ).settings()

    assert (settings.run_dir, settings.kubelet_dir, settings.host_root) == (
        Path("/option"),
        Path("/environment"),
        Path("/file"),
    )


def test_a_reload_keeps_what_the_command_line_gave(tmp_path):
    """A changed file must not undo an option."""
    path = tmp_path / "config.yaml"
    path.write_text("listen: 127.0.0.1:1\n")
    settings = load({"config": str(path), "listen": "127.0.0.1:2"}, {}).settings()
    path.write_text("listen: 127.0.0.1:3\nscan: {period: 9s}\n")

    reloaded = reload(settings, {})

    assert (reloaded.listen, reloaded.scan.period) == ("127.0.0.1:2", 9.0)


@pytest.mark.parametrize(
    ("written", "meant"),
    [(each, True) for each in ("true", "on", "'true'", '"TRUE"', "'yes'", "'On'", "y")]
    + [(each, False) for each in ("false", "off", "'false'", '"False"', "'NO'", "'off'", "n")],
)
def test_a_truth_value_may_be_quoted_and_spelt_as_yaml_spells_it(tmp_path, written, meant):
    """Templates quote what they put in."""
    loaded = load_text(tmp_path, f"scan: {{events: {written}}}\nkubernetes: {{node_condition: {written}}}")

    assert (loaded.scan.events, loaded.kubernetes.node_condition) == (meant, meant)


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

    settings = load({}, environ).settings()

    assert (settings.run_dir, settings.host_root, settings.listen) == (Path("/file"), Path("/"), "")


def test_yamls_merge_keys_work(tmp_path):
    """Ordinary YAML; a key may then stand in both mappings."""
    loaded = load_text(tmp_path, "simulated:\n- &x {name: a.b/c, count: 1}\n- {<<: *x, name: a.b/d}\n")

    assert [(one.name, one.count) for one in loaded.simulated] == [("a.b/c", 1), ("a.b/d", 1)]


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours, minutes, seconds, milliseconds):
    """`1h2m3s4ms` is what it says, in seconds."""
    parsed = parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms")

    assert parsed == pytest.approx(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)


def test_a_file_that_spells_out_the_defaults_of_every_section_says_no_more_than_its_rules(tmp_path):
    """Whoever writes a default down gets what he would get without it."""
    spelt_out = load_text(tmp_path, CONTRACT_EXAMPLE)
    told = "".join(CONTRACT_EXAMPLE.partition("resources:")[1:])

    assert spelt_out.model_dump() == load_text(tmp_path, told).model_dump()
    assert spelt_out.native_json() == load_text(tmp_path, told).native_json()
