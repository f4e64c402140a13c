"""The resource child: one process for one resource type, between its spool file and the kubelet.

spool file → resource_file → snapshot → service (stream, allocation, preferred) → kubelet; keeper → generation →
registration, endpoint brings the service to the kubelet and back again whenever it is lost.
"""
