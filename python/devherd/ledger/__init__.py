"""The ledger: the processes that really use each device, compared with the pods that the kubelet has given it to.

`processes` finds the processes that have devices open; `compare` finds conflicts with the kubelet's assignments.
"""
