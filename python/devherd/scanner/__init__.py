"""The scanner process, the only one that touches sysfs, procfs and /dev: from the host to the spool.

`pipeline` strings the steps together: scan (in Rust) → inventory → health → resources, with CDI specs beside them.
`account` brings the spool up to date by it, through `publisher`; `main` says when, by the clock and by `host_events`.
"""
