"""Process `pre-start`: runs the checks of a rule's key `pre_start` before a container with a device starts.

The kubelet asks a resource child, which must not open a device or start a program. The child asks `main`, which answers
each request from a separate process (`checks`).
"""
