"""One supervisor for every FPGA, GPU and other device on a Kubernetes node.

The way of the data, module by module:

    _native (Rust: sysfs, procfs, /dev)  →  inventory  →  health  →  resources  →  spool          [the scanner process]
    spool  →  supervisor (forks one child per file)
    spool  →  plugin (one process per resource type)  →  kubelet
    spool  →  exporter, cli
"""
