"""The supervisor of `devherd run`, on supervisord's own classes: `run` starts it, `herd` is its loop, `seam` its fork.

run  →  first_scan (forked: scans while the supervisor imports)
run  →  preparation: lock, main_log, control, options  →  herd  →  process  →  seam  →  a main function (programs)
"""
