"""Every row of the fault matrix: importing a part adds its rows."""

import child_faults  # noqa: F401
import host_faults  # noqa: F401
import kubelet_faults  # noqa: F401
import operator_faults  # noqa: F401
import source_faults  # noqa: F401
from matrix import ROWS

__all__ = ["ROWS"]
