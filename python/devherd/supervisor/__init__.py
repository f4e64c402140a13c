"""The supervisor of `devherd run`, on supervisord's own classes: `run` starts it, `herd` loops, `fork` starts a child.

run  →  first_scan (forked: scans while the supervisor imports)
run  →  startup: lock, output, control, options  →  herd  →  process  →  fork  →  a main function (programs)
"""
