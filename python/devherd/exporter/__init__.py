"""HTTP server: /metrics, /healthz, /readyz, the status page and the inventory as JSON."""
