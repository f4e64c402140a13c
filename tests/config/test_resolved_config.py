"""The configuration in force, as the processes that run read it."""

import json
import stat
from dataclasses import replace

import pytest

from devherd.config import resolved, sections
from devherd.config.loader import load, resolve
from devherd.config.model import Config
from devherd.config.resolved import ResolvedFileError, read_resolved, write_resolved
from devherd.settings import Settings

WRITTEN = """
host_root: /host
cdi_dir: /etc/cdi
listen: ""
exporter: {device_metrics: all}
scan: {period: 7s, events: false, probe_timeout: 250ms}
health:
  {kernel_log: {optional: [mlx5-unrecoverable], rules: [{name: mine, contains: nvme, pattern: "^nvme (?P<bdf>.*) is"}]},
  poll: 2s, recover_after: 5, forget_after: 1m, breaker: off, flapping: off, rules: [
    {match: {vendor: intel-fpga, exclude: [{numa_node: 1}]}, reason: temperature, value: 79, action: warn, hold: 1m},
    {source: [pci-link, "node*"], after: 30s}]}
vendors:
  nvidia: {enabled: true, mig_strategy: mixed, mps_root: /run/mps, shared_devices_allocation_policy: packed}
  intel_gpu: {allocation_policy: balanced, monitoring: split}
  rdma: {enabled: false}
resources:
  - match: {vendor: intel-fpga, pci_address: ["0000:81:*", "0000:82:*"], exclude: [{afu_id: "0*"}]}
    name: example.com/af
    preferred: packed
    sharing: {replicas: 4, rename: example.com/af.shared, fail_requests_greater_than_one: true}
  - {match: {vendor: rdma}, advertise: false}
generic: [{name: devic.es/kvm, groups: [{paths: [{path: /dev/kvm}]}]}]
"""


@pytest.fixture
def written(tmp_path):
    """What the loader makes of a file with something in every section."""
    (tmp_path / "config.yaml").write_text(WRITTEN)
    return load({"config": str(tmp_path / "config.yaml"), "run_dir": str(tmp_path / "run")}, {})


def test_every_process_reads_what_the_loader_has_resolved(written, tmp_path):
    """Through the file in the run directory, which is nobody else's to read."""
    config = resolve(written)
    path = tmp_path / "config.json"

    write_resolved(path, config)

    assert read_resolved(path) == config
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if "new" in each.name] == []


def test_the_resolved_form_says_what_the_file_says(written, tmp_path):
    """Key by key; what only the scan core reads is in the JSON for it."""
    config = resolve(written)

    assert config.settings() == written.settings()
    assert (config.source, str(config.host_root), str(config.cdi_dir)) == (
        tmp_path / "config.yaml",
        "/host",
        "/etc/cdi",
    )
    assert config.scan == sections.ScanOptions(period=7.0, events=False, probe_timeout=0.25)
    mine = sections.KernelLogRule(name="mine", contains="nvme", pattern="^nvme (?P<bdf>.*) is")
    kernel_log = sections.KernelLogOptions(optional=["mlx5-unrecoverable"], rules=[mine])
    rules = [
        sections.HealthRule(
            match=sections.Match(
                facts={"vendor": ["intel_fpga"]}, exclude=[sections.Selector(facts={"numa_node": ["1"]})]
            ),
            reason=["temperature"],
            value=["79"],
            action="warn",
            hold=60.0,
            place=f"{tmp_path}/config.yaml:10:5: health.rules[0]",
        ),
        sections.HealthRule(
            source=["pci-link", "node*"], after=30.0, place=f"{tmp_path}/config.yaml:11:5: health.rules[1]"
        ),
    ]
    assert config.health == sections.HealthOptions(
        poll=2.0,
        recover_after=5,
        forget_after=60.0,
        breaker=False,
        flapping=False,
        rules=rules,
        kernel_log=kernel_log,
    )
    assert config.vendors == {name: sections.VendorOptions() for name in type(written.vendors).model_fields} | {
        "nvidia": sections.VendorOptions(enabled=True, preferred_shared="packed"),
        "rdma": sections.VendorOptions(enabled=False),
    }
    assert config.exporter == sections.ExporterOptions(device_metrics="all")
    assert config.mps_root == "/run/mps"
    assert config.resources == [
        sections.ResourceRule(
            match=sections.Match(
                facts={"vendor": ["intel_fpga"], "pci_address": ["0000:81:*", "0000:82:*"]},
                exclude=[sections.Selector(facts={"afu_id": ["0*"]})],
            ),
            name="example.com/af",
            preferred="packed",
            sharing=sections.Sharing(replicas=4, rename="example.com/af.shared", refuses_more_than_one=True),
            place=f"{tmp_path}/config.yaml:17:5: resources[0]",
        ),
        sections.ResourceRule(
            match=sections.Match(facts={"vendor": ["rdma"]}),
            advertise=False,
            place=f"{tmp_path}/config.yaml:21:5: resources[1]",
        ),
    ]
    assert json.loads(config.native_json())["vendors"]["nvidia"]["mig_strategy"] == "mixed"
    assert config.native_json() == written.native_json()


def test_the_scan_core_is_told_the_ways_in_use(written):
    """The device plugin's alone, unless something else says so."""
    config = resolve(written)
    both = replace(config, ways=("device-plugin", "cdi"))

    assert json.loads(config.native_json())["ways"] == ["device-plugin"]
    assert json.loads(both.native_json())["ways"] == ["device-plugin", "cdi"]
    assert resolved.from_json(resolved.as_json(both)) == both


def test_the_sections_in_force_have_the_defaults_of_the_models():
    """They are generated from them, by `make models`."""
    loaded = resolve(Config())

    assert replace(loaded, native="{}", vendors={}) == resolved.ResolvedConfig(common=Settings())
    unset = sections.VendorOptions()
    said = {name: options for name, options in loaded.vendors.items() if options != unset}
    assert said == {"nvidia": sections.VendorOptions(preferred_shared="distributed")}  # as its row has it


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"common": 1}', '{"common": {}, "colour": "green"}'])
def test_a_file_that_is_no_resolved_configuration_is_one_error(tmp_path, content):
    """Torn, or of another version: the reader keeps what it has."""
    path = tmp_path / "config.json"
    path.write_text(content)

    with pytest.raises(ResolvedFileError, match="not a resolved configuration"):
        read_resolved(path)
