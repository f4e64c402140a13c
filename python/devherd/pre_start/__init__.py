"""Process `pre-start`: what must hold before a container with a device starts, by the key `pre_start` of its rule.

The kubelet asks a resource child, which may open no device and start no program; that asks `main`, which answers each
request from a process of its own (`checks`).
"""
