"""Access to the kubelet, for every front end: sockets, registration, the PodResources API."""
