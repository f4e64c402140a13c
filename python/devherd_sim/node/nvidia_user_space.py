"""The part of NVIDIA's driver that runs in user space, and the program of its container toolkit.

Libraries, programs, files for graphics, firmware and a daemon's socket. All are empty: what counts is where they are
and what they are called.
"""

from devherd_sim.node.entry import Entry, File, Symlink

_LIBRARY_DIRECTORY = "usr/lib/x86_64-linux-gnu"
_LIBRARIES = (
    "libGLX_nvidia",
    "libEGL_nvidia",
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-encode",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-ptxjitcompiler",
)
_GRAPHICS = (
    "etc/OpenCL/vendors/nvidia.icd",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
)
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-ctk")


def entries(version: str) -> list[Entry]:
    """As a distribution's packages of this version lay it out."""
    return [
        *(File(f"{_LIBRARY_DIRECTORY}/{name}.so.{version}", b"") for name in _LIBRARIES),
        Symlink(f"{_LIBRARY_DIRECTORY}/libcuda.so.1", f"libcuda.so.{version}"),
        File(f"{_LIBRARY_DIRECTORY}/vdpau/libvdpau_nvidia.so.{version}", b""),
        *(File(f"usr/bin/{name}", b"") for name in _PROGRAMS),
        *(File(path, b"") for path in _GRAPHICS),
        *(File(f"usr/lib/firmware/nvidia/{version}/{name}", b"") for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")),
        File("run/nvidia-persistenced/socket", b""),
    ]
