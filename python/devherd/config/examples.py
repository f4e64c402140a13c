"""An example of each section of the configuration file, for `devherd config sample` and docs/configuration.md."""

EXAMPLES: dict[str, str] = {
    "scan": """\
# Look at the host each 30 seconds when nothing happens.
scan: {period: 30s}
""",
    "health": """\
# Be slower to trust a device again, and forget one that is gone after an hour.
health: {recover_after: 10, forget_after: 1h}
""",
    "health.kernel_log": """\
# One of the shipped rules that are off, and a rule of your own.
health:
  kernel_log:
    optional: [mlx5-high-temperature]
    rules:
      - {name: nic-reset, contains: "NIC Link is Down", pattern: '(?P<bdf>[0-9a-f:.]+): .*NIC Link is Down'}
""",
    "health.rules": """\
# Links that train down are no matter on RDMA cards; elsewhere they count when they last.
health:
  rules:
    - {match: {vendor: rdma}, reason: link-degraded, action: ignore}
    - {reason: link-degraded, action: unhealthy, after: 5m}
""",
    "health.xid": """\
# As NVIDIA's plugin, but for two codes.
health: {xid: {policy: plugin, 94: ignore, 31: warn}}
""",
    "health.external": """\
# A program of your own that is run each minute.
health:
  external:
    - name: bandwidth
      match: {vendor: nvidia}
      command: [/opt/checks/bandwidth, --quick]
      interval: 1m
      timeout: 30s
""",
    "kubernetes": """\
kubernetes: {node_condition: true}
""",
    "node_labels": """\
# By Node Feature Discovery, without the second set of AMD's names.
node_labels: {write: node_feature, omit: "beta.amd.com/*"}
""",
    "exporter": """\
# Each device once, however many containers share it.
exporter: {device_metrics: physical}
""",
    "vendors": """\
vendors: {amd: {enabled: false}}
""",
    "vendors.intel_fpga": """\
vendors: {intel_fpga: {mode: region}}
""",
    "vendors.nvidia": """\
# MIG devices by profile, given to containers by CDI.
vendors: {nvidia: {mig_strategy: mixed, device_list_strategy: [cdi-cri]}}
""",
    "vendors.nvidia.imex": """\
vendors: {nvidia: {imex: {channel_ids: [0], required: true}}}
""",
    "vendors.amd": """\
vendors: {amd: {naming: mixed}}
""",
    "vendors.intel_gpu": """\
# Each card for ten containers, filled one after the other.
vendors: {intel_gpu: {shared_devices: 10, allocation_policy: packed}}
""",
    "vendors.xilinx_fpga": """\
vendors: {xilinx_fpga: {u30_alloc_unit: device}}
""",
    "vendors.rdma": """\
# The ports of one kind of card as a pool for 63 containers.
vendors:
  rdma:
    mode: shared
    pools:
      - {name: rdma/hca_shared, rdma_hca_max: 63, selectors: {vendors: [15b3], link_types: [infiniband]}}
""",
    "resources": """\
# All H200s but one under a name of their own, each for four containers; A100s are not advertised.
resources:
  - match: {vendor: nvidia, model: "*H200*", exclude: [{pci_address: "0000:3b:00.0"}]}
    name: nvidia.com/h200
    sharing: {replicas: 4}
    preferred: packed
  - match: {vendor: nvidia, model: "*A100*"}
    advertise: false
""",
    "generic": """\
# /dev/kvm for up to ten containers at once, and each adapter of one kind.
generic:
  - {name: devic.es/kvm, groups: [{count: 10, paths: [{path: /dev/kvm}]}]}
  - {name: devic.es/serial, groups: [{usb: [{vendor: "0403", product: "6001"}], separate: true}]}
""",
    "simulated": """\
simulated:
  - {name: example.com/gpu, count: 8, numa_nodes: 2}
""",
}
"""By key path. Each is a whole configuration; its comments say what it does."""
