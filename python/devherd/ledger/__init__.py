"""The ledger: who really holds which device, by what processes have open and what the kubelet has given to pods.

`processes` reads who has devices open, `given` parses what the kubelet has given, `conflicts` finds what differs.
"""
