"""Looks at GPUs, as rust/src/nvml/gpu_health.rs has them."""

NOTHING = {
    "recovery_action": None, "remap_failed": None, "remap_pending": None, "retirement_pending": None,
    "retired_pages": None, "remapped_corrected": None, "remapped_uncorrected": None, "uncorrected_errors": None,
    "corrected_errors": None, "lifetime_uncorrected_errors": None, "lifetime_corrected_errors": None,
    "inactive_remapped_corrected": None, "inactive_remapped_uncorrected": None,
    "sram_threshold_exceeded": None, "unrepairable_memory": None, "repair_pending": None, "pcie_replays": None,
    "links": {}, "link_errors": {}, "fabric": None, "clock_reasons": None,
    "mig_mode": None, "mig_mode_pending": None, "is_persistent": None, "energy": None, "refusal": None,
    "failures": [],
}  # fmt: skip
"""Of a GPU that supports nothing."""
FINE = {
    "recovery_action": 0, "remap_failed": False, "remap_pending": False, "retirement_pending": False,
    "retired_pages": 62, "remapped_corrected": 3, "remapped_uncorrected": 1, "uncorrected_errors": 0,
    "corrected_errors": 7, "lifetime_uncorrected_errors": 2, "lifetime_corrected_errors": 70,
    "inactive_remapped_corrected": 1, "inactive_remapped_uncorrected": 0,
    "sram_threshold_exceeded": False, "unrepairable_memory": False, "repair_pending": False, "pcie_replays": 5,
    "links": {"0": True, "1": True}, "link_errors": {"crc": 4, "recovery-failed": 0},
    "fabric": {"state": 3, "status": 0, "summary": 1}, "clock_reasons": 0x1 | 0x4 | 0x8 | 0x20,
    "mig_mode": False, "mig_mode_pending": False, "is_persistent": True, "energy": 5_000_000, "refusal": None,
    "failures": [],
}  # fmt: skip
"""Of one that is well."""
