"""Health: what is held against each device, and until when."""
