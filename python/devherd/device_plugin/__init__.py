"""The resource child: one process for one resource type, between its spool file and the kubelet.

spool file → resource_file → snapshot → service (stream, allocation) → kubelet. `registrar` runs one server generation
after another; each registers through `devherd.kubelet`, and ends when the kubelet has lost it.
"""
