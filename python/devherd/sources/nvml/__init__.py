"""Source `nvml`: NVIDIA's library, called in a separate process."""
