"""Nodes without an accelerator."""

from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import DeviceSpec, NodeSpec, UsbSpec

PRESETS = {
    "generic": Preset(
        "no accelerator: kvm, fuse, tun, 4 serial adapters and a camera",
        NodeSpec(
            usb=[
                *(UsbSpec(vendor="1a86", product="7523", function="serial") for _ in range(2)),
                UsbSpec(vendor="0403", product="6001", serial="A50285BI", function="serial"),
                UsbSpec(vendor="0403", product="6001", serial="A50285BJ", function="serial"),
                UsbSpec(vendor="046d", product="0825", serial="7A3B1C20", function="video"),
            ],
            devices=[
                DeviceSpec(path="/dev/kvm", number="10:232"),
                DeviceSpec(path="/dev/fuse", number="10:229"),
                DeviceSpec(path="/dev/net/tun", number="10:200"),
            ],
        ),
    ),
}
