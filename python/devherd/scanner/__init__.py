"""The scanner process, the only one that touches sysfs, procfs and /dev: from the host to the spool.

`pipeline` strings the steps together: scan (in Rust) → inventory → health → resources, with CDI specs beside them.
`round` brings the spool up to date by it, through `publisher`, which lets no device into a resource before the one
that it left has sent its list without it (`moves`, `acknowledgements`); `main` says when, by the clock and by
`host_events`.
"""
