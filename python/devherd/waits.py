"""How long the processes of an instance wait, in seconds: settings without an option, which only tests change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Times for which tests would wait; all others are constants where they are used."""

    silence: float = 10.0
    """The supervisor replaces a child whose heartbeat is older; the exporter reports a supervisor with an older one."""
    tick: float = 1.0
    """Between two periodic checks of the supervisor while something happens; otherwise it is LOOK_PERIOD_SECONDS."""
    lively: float = 10.0
    """After an event, the supervisor and resource children look at what events report at each tick and heartbeat."""
    first_scan: float = 5.0
    """The supervisor starts without the first scan if that takes longer."""
    ready: float = 10.0
    """The service manager hears then that the service is ready, even if children still fail: the kubelet must start."""
    stop: float = 5.0
    """A child that has not ended this long after it was stopped gets SIGKILL."""
    die: float = 2.0
    """A child that survives SIGKILL for this time is in uninterruptible sleep."""
    steady: float = 60.0
    """A child that has run for so long is restarted at once when it fails."""
    rehearsal: float = 30.0
    """A standby serves HTTP then, if its rehearsal has not finished: its pod's startup probe waits a minute."""
    hand_over: float = 10.0
    """An instance that stands by must have taken over by then."""
    newer_driver: float = 60.0
    """So long it must last: an upgrade replaces the driver's files and the loaded driver one after the other."""
    nvml_look: float = 30.0
    """Between two looks at the GPUs; an event makes the next look earlier."""
    nvml_second_look: float = 5.0
    """After NVML has refused a GPU once: another look decides."""
    monitor_look: float = 30.0
    """Between two calls of a vendor's monitor."""


USUAL_WAITS = Waits()
