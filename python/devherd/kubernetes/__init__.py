"""Processes that talk to the API server, if the pod has access to one.

They report devices by Events, a condition and labels of the node, and read the label that chooses the configuration.
"""
