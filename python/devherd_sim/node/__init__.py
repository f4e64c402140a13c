"""Simulated host trees: sys, proc and dev of a node as its kernel would lay them out, below any directory."""
