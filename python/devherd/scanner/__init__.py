"""The scanner process, the only one that touches sysfs, procfs and /dev: from the host to the spool.

`pipeline` runs the steps: scan (in Rust) → inventory → health → offers, and writes the CDI specs.
`round` writes the result to the spool through `publisher`, which adds a device to a resource only after the resource
that it left has sent its list without it. `loop` decides when a round runs: by the clock and by `host_events`.
"""
