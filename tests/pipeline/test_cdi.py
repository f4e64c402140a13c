"""CDI spec files: in place before a device is advertised."""

import json

from devherd.proto import spool_pb2
from devherd.scanner.cdi import CdiSpecs, spec_path

HOOK = {"hooks": [{"hookName": "createRuntime", "path": "/opt/intel/fpga-sw/intel-fpga-crihook"}]}
NAME = "intel.cdi.k8s.io/fpga=dfl-fme.0"
REGION = spool_pb2.Device(id="dfl-fme.0", cdi_devices=[NAME], cdi_edits={NAME: json.dumps(HOOK)})


def test_a_spec_has_the_vendor_plugins_file_name_and_says_what_the_device_needs(tmp_path):
    """Drop-in: runtimes and people find the file where the vendor's plugin puts it."""
    assert CdiSpecs(tmp_path / "cdi").publish(REGION) is None

    path = tmp_path / "cdi" / "intel.cdi.k8s.io-fpga-dfl-fme.0.yaml"
    assert json.loads(path.read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": "intel.cdi.k8s.io/fpga",
        "devices": [{"name": "dfl-fme.0", "containerEdits": HOOK}],
    }
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_spec_that_someone_removed_is_written_again(tmp_path):
    """A pod that starts later must find it."""
    specs = CdiSpecs(tmp_path)
    specs.publish(REGION)
    path = spec_path(tmp_path, REGION.cdi_devices[0])
    path.unlink()

    specs.publish(REGION)

    assert path.exists()


def test_a_spec_that_cannot_be_written_is_told(tmp_path):
    """The device must not be handed out: its pod would not start."""
    (tmp_path / "cdi").write_text("in the way")

    assert isinstance(CdiSpecs(tmp_path / "cdi").publish(REGION), OSError)


def test_the_spec_of_a_forgotten_device_is_removed(tmp_path):
    """Nothing stale is left for runtimes to trip over."""
    specs = CdiSpecs(tmp_path)
    specs.publish(REGION)

    specs.withdraw(REGION)

    assert list(tmp_path.iterdir()) == []


def test_a_device_without_edits_needs_no_spec(tmp_path):
    """Most devices are nodes and nothing else."""
    assert CdiSpecs(tmp_path).publish(spool_pb2.Device(id="x", cdi_devices=["a.b/c=d"])) is None
    assert list(tmp_path.iterdir()) == []
