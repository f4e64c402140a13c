"""Source `nvml`: NVIDIA's library, asked and watched by a process of its own (`main`).

`question` is one call that may hang, `answer` what a scan reads, `session` and `watcher` follow the GPUs' health, of
which `findings` says what it means; `once` asks for a single scan without an instance.
"""
