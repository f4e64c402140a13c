"""The embedded kubelet: its device manager, as device plugins meet it, without a cluster."""
