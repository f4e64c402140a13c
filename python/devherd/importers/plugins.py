"""The plugins that can be imported, by name."""

from devherd.importers.amd import AMD
from devherd.importers.generic import GENERIC
from devherd.importers.intel import FPGA, GPU
from devherd.importers.nvidia import NVIDIA
from devherd.importers.rdma_shared import RDMA_SHARED
from devherd.importers.sriov import SRIOV
from devherd.importers.xilinx import XILINX

PLUGINS = {plugin.name: plugin for plugin in (NVIDIA, GENERIC, FPGA, GPU, RDMA_SHARED, SRIOV, XILINX, AMD)}
"""The first that fits has it: the programs of Xilinx and AMD have one name, which Xilinx' image has as well."""
COMPANIONS = frozenset(
    {"config-manager", "gpu-feature-discovery", "mps-control-daemon", "mount-shm", "k8s-node-labeller"}
    | {"intel-gpu-levelzero", "gpu-operator"}
)
"""Programs of the plugins' own images and manifests that advertise nothing: they have no configuration of a plugin."""
