"""The resource child: one process for each resource, which serves the resource's spool file to the kubelet.

spool file → resource_file → snapshot → service (streams, allocation) → kubelet. `child` runs one server `generation`
after another; each registers through `devherd.kubelet` and ends when its registration is lost.
"""
