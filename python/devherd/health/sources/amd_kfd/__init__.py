"""Source `amd-kfd`: AMD's driver tells of the resets of GPUs, by descriptors that its device /dev/kfd gives out.

`topology` is which GPUs there are, `listeners` the descriptors, `events` what is read from them, `way` what comes of
it.
"""
