"""Nodes with RDMA cards."""

from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import NodeSpec

PRESETS = {
    "rdma-2": Preset(
        "2 RDMA cards (mlx5, InfiniBand) on 2 NUMA nodes", NodeSpec(rdma=[RdmaSpec(cards=2, numa_nodes=2)])
    ),
    "rdma-sriov": Preset(
        "one RDMA card (mlx5, RoCE) with 4 virtual functions", NodeSpec(rdma=[RdmaSpec(vfs=4, link_layer="Ethernet")])
    ),
}
