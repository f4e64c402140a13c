"""Section `health` of the configuration file."""

from typing import Annotated

from pydantic import Field

from devherd.config.external import External
from devherd.config.health_rule import HealthRule
from devherd.config.kernel_log import KernelLogOptions
from devherd.config.section import Section
from devherd.config.values import Count, Duration, MonitorSocket, Switch
from devherd.config.xid_policy import XidPolicy


class HealthOptions(Section):
    """How health is polled and judged, and how long a device that vanished is remembered."""

    poll: Duration = 1.0
    """Time between two looks at the health of devices."""
    recover_after: Annotated[Count, Field(ge=1)] = 3
    """After how many good looks in a row a device is Healthy again."""
    forget_after: Duration = 300.0
    """How long a device that no scan finds any more is listed as Unhealthy with `gone`."""
    breaker: Switch = True
    """Whether a source that condemns most cards of the node at once is doubted for a minute."""
    flapping: Switch = True
    """Whether what comes and goes is held for longer."""
    kernel_log: KernelLogOptions = KernelLogOptions()
    rules: list[HealthRule] = []
    """Rules for what is found wrong; the first that fits a finding decides what it does."""
    xid: XidPolicy = XidPolicy()
    external: list[External] = []
    """Programs and files of your own that say how devices are."""
    amd_exporter: MonitorSocket = "auto"
    """The socket of AMD's metrics exporter; `auto`: at its usual place, if it is there; `false`: never."""
    amd_nic_exporter: MonitorSocket = "auto"
    """Its socket for AMD's network cards; `auto`: at its usual place, if it is there; `false`: never."""
    xpumd: MonitorSocket = "auto"
    """The socket of Intel's xpumd; `auto`: at its usual place, if it is there; `false`: never."""
    amd_kfd: Switch = False
    """Whether AMD's driver is listened to, which tells of resets by `/dev/kfd`. That stays open then, and while it
    is, the kernel refuses to partition GPUs anew: set it to `false` before."""
