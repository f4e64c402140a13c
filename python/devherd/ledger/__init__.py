"""The ledger: who really holds which device, by what processes have open and what the kubelet has given to pods.

`nodes` names the device of a node's number, `processes` reads who has such numbers open, `cgroup` parses whose a
process is.
"""
