"""The scanner process, the only one that touches sysfs, procfs and /dev: from the host to the spool.

`pipeline` runs the steps: scan (in Rust) → inventory → health → offers, and writes the CDI specs.
`round` writes the result to the spool through `publisher`. A device that moves is added to its new resource only after
the old resource has sent its list without the device. `loop` decides when a round runs: by clock and `host_events`.
"""
