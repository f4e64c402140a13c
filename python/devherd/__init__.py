"""One supervisor for all FPGAs, GPUs and other devices of a Kubernetes node.

Data flow, module by module:

    _native (Rust: sysfs, procfs, /dev)  →  inventory  →  offers, health  →  spool                 [the scanner process]
    spool  →  supervisor (forks one child per resource)
    spool  →  device_plugin (one process per resource)  →  kubelet
    spool  →  exporter, cli
"""
