"""The configuration in force, as the processes that run read it."""

import dataclasses
import json
import stat

import pytest

from devherd.config import Config, load, resolve, resolved, resolved_file
from devherd.settings import Settings

WRITTEN = """
host_root: /host
cdi_dir: /etc/cdi
listen: ""
exporter: {device_metrics: physical}
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

    resolved_file.write(path, config)

    assert resolved_file.read(path) == config
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
    assert config.scan == resolved.ScanOptions(period=7.0, events=False, probe_timeout=0.25)
    mine = resolved.KernelLogRule(name="mine", contains="nvme", pattern="^nvme (?P<bdf>.*) is")
    kernel_log = resolved.KernelLogOptions(optional=["mlx5-unrecoverable"], rules=[mine])
    rules = [
        resolved.HealthRule(
            match=resolved.Match(
                facts={"vendor": ["intel_fpga"]}, exclude=[resolved.Selector(facts={"numa_node": ["1"]})]
            ),
            reason=["temperature"],
            value=["79"],
            action="warn",
            hold=60.0,
            place=f"{tmp_path}/config.yaml:10:5: health.rules[0]",
        ),
        resolved.HealthRule(
            source=["pci-link", "node*"], after=30.0, place=f"{tmp_path}/config.yaml:11:5: health.rules[1]"
        ),
    ]
    assert config.health == resolved.HealthOptions(
        poll=2.0,
        recover_after=5,
        forget_after=60.0,
        breaker=False,
        flapping=False,
        rules=rules,
        kernel_log=kernel_log,
    )
    assert config.vendors == {name: resolved.VendorOptions() for name in type(written.vendors).model_fields} | {
        "nvidia": resolved.VendorOptions(enabled=True, preferred_shared="packed"),
        "rdma": resolved.VendorOptions(enabled=False),
    }
    assert config.exporter == resolved.ExporterOptions(device_metrics="physical")
    assert config.mps_root == "/run/mps"
    assert config.resources == [
        resolved.ResourceRule(
            match=resolved.Match(
                facts={"vendor": ["intel_fpga"], "pci_address": ["0000:81:*", "0000:82:*"]},
                exclude=[resolved.Selector(facts={"afu_id": ["0*"]})],
            ),
            name="example.com/af",
            preferred="packed",
            sharing=resolved.Sharing(replicas=4, rename="example.com/af.shared", refuses_more_than_one=True),
            place=f"{tmp_path}/config.yaml:17:5: resources[0]",
        ),
        resolved.ResourceRule(
            match=resolved.Match(facts={"vendor": ["rdma"]}),
            advertise=False,
            place=f"{tmp_path}/config.yaml:21:5: resources[1]",
        ),
    ]
    assert json.loads(config.native_json())["vendors"]["nvidia"]["mig_strategy"] == "mixed"
    assert config.native_json() == written.native_json()


def test_defaults_are_the_same_whether_the_loader_or_nobody_says_them():
    """Two places name them: the schema of the file, and the plain values of tests and simulated herds."""
    loaded = resolve(Config())

    assert dataclasses.replace(loaded, native="{}", vendors={}) == resolved.Config(common=Settings())
    unset = resolved.VendorOptions()
    said = {name: options for name, options in loaded.vendors.items() if options != unset}
    assert said == {"nvidia": resolved.VendorOptions(preferred_shared="distributed")}  # as its row has it


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"common": 1}', '{"common": {}, "colour": "green"}'])
def test_a_file_that_is_no_resolved_configuration_is_one_error(tmp_path, content):
    """Torn, or of another version: the reader keeps what it has."""
    path = tmp_path / "config.json"
    path.write_text(content)

    with pytest.raises(resolved_file.ResolvedFileError, match="not a resolved configuration"):
        resolved_file.read(path)
