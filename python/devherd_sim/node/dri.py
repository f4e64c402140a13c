"""The DRM minors of a GPU, and udev's links to them below /dev/dri.

<https://docs.kernel.org/gpu/drm-uapi.html>; systemd's 60-drm.rules.
"""

from devherd_sim.node.entry import Entry, File, link
from devherd_sim.node.machine import class_device, class_node
from devherd_sim.node.pci import Function

DRM_MAJOR = 226
_FIRST_RENDER_MINOR = 128


def class_version() -> list[Entry]:
    """The file /sys/class/drm/version."""
    return [File.line("sys/class/drm/version", "drm 1.1.0 20060810")]


def card(function: Function, number: int, connectors: int = 0) -> list[Entry]:
    """`card<number>`, its render minor and its display connectors."""
    name = f"card{number}"
    path = f"{function.path}/drm/{name}"
    made = [
        *_minor(function, name, number),
        *_minor(function, f"renderD{_FIRST_RENDER_MINOR + number}", _FIRST_RENDER_MINOR + number),
    ]
    for connector in range(1, connectors + 1):
        made += class_device(f"{path}/{name}-DP-{connector}", "drm", path)
    return made


def _minor(function: Function, name: str, minor: int) -> list[Entry]:
    path, node = f"{function.path}/drm/{name}", f"dri/{name}"
    kind = "card" if name.startswith("card") else "render"
    return [
        *class_node(path, "drm", node, (DRM_MAJOR, minor)),
        link(f"{path}/device", function.path),
        link(f"dev/dri/by-path/pci-{function.address}-{kind}", f"dev/{node}"),
    ]
