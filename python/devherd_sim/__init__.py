"""Simulations for development, demonstration and tests: a node without its hardware, a kubelet without its cluster."""
