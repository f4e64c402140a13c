"""When to start a child again that has ended: at once, then ever later, but always. Pure functions."""

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long has recovered: its next failure counts as its first."""
JITTER = 0.2
"""Share of a delay that chance may take off, so that children which fell together do not get up together."""

_DOUBLINGS = 32  # far beyond LONGEST_SECONDS, and far below what a float can hold


def failures_in_a_row(before: int, lived_seconds: float) -> int:
    """Failures in a row, counting one of a child that lived this long and had failed `before` times already."""
    return 1 if lived_seconds >= STEADY_SECONDS else before + 1


def delay_seconds(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row; `chance` is a random number of [0, 1)."""
    if failures <= 1:
        return 0.0
    doubled = FIRST_SECONDS * 2 ** min(failures - 2, _DOUBLINGS)
    return float(min(doubled, LONGEST_SECONDS) * (1 - JITTER * chance))
