"""`devherd scan` on the machine that runs the tests: what it prints is what is there."""

import json
from pathlib import Path

from outside import devherd

WANTED = ("/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/null")


def test_a_generic_configuration_shows_what_is_really_there(tmp_path):
    """Devices that exist are Healthy with their own node; those that do not are not listed."""
    config = tmp_path / "config.yaml"
    groups = [{"name": f"devic.es/{Path(path).name}", "groups": [{"paths": [{"path": path}]}]} for path in WANTED]
    config.write_text(json.dumps({"generic": groups, "vendors": {"intel_fpga": {"enabled": False}}}))

    scanned = json.loads(devherd("scan", "--config", str(config), "--output", "json").stdout)

    shown = {
        device["nodes"][0]["host_path"]: device["health"] for one in scanned["resources"] for device in one["devices"]
    }
    there = {path for path in WANTED if Path(path).is_char_device()}
    assert "/dev/null" in there
    assert shown == dict.fromkeys(there, "Healthy")


def test_a_scan_without_configuration_works_on_any_machine():
    """No driver, no device, no error."""
    scanned = devherd("scan", "--output", "json")

    assert scanned.returncode == 0
    assert set(json.loads(scanned.stdout)) == {
        "devherd", "host", "duration_seconds", "resources", "problems", "notices",
    }  # fmt: skip
