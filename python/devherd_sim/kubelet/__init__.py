"""The embedded kubelet: a kubelet's device manager for device plugins, without a cluster."""
