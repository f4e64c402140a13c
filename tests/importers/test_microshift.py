"""MicroShift's own generic device plugin: a section of its file."""

import yaml

from devherd.config.model import Config
from devherd.importers import import_text

SECTION = {
    "status": "Enabled",
    "devices": [
        {"name": "serial", "groups": [{"paths": [{"path": "/dev/ttyUSB*"}, {"path": "/dev/ttyACM*"}]}]},
        {"name": "converter", "groups": [{"usbs": [{"product": "0x7523", "vendor": "0x1a86", "serial": ""}]}]},
    ],
}


def imported(**section):
    text = yaml.safe_dump({"dns": {"baseDomain": "a.example"}, "genericDevicePlugin": SECTION | section})
    (found,) = import_text(text, "config.yaml", None)
    Config.model_validate(found.config)
    return found


def test_its_devices_keep_their_names_paths_and_usb_ids():
    """Under its default domain, or the one that is set; `usbs` is what the plugin itself calls `usb`."""
    found = imported()
    assert [device["name"] for device in found.config["generic"]] == [
        "device.microshift.io/serial",
        "device.microshift.io/converter",
    ]
    assert found.config["generic"][1]["groups"][0].keys() == {"usb"}
    assert "dns left out: settings of MicroShift" in found.notes
    assert any("genericDevicePlugin.status: Disabled" in note for note in found.notes)
    assert imported(domain="a.example").config["generic"][0]["name"] == "a.example/serial"


def test_a_section_that_is_switched_off_says_that_nothing_was_served():
    """Its default."""
    found = imported(status="Disabled")
    assert not found.serves_the_same
    assert "genericDevicePlugin.status is not Enabled: MicroShift serves no such device" in found.notes
