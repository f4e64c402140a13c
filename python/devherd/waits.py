"""How long the processes of an instance wait, in seconds: settings without an option, which only tests change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Times for which tests would wait; all others are constants where they are used."""

    silence: float = 10.0
    """The supervisor replaces a child whose heartbeat is older; the exporter reports a supervisor with an older one."""
    round: float = 1.0
    """Between two rounds of process `kubernetes` and of listeners, each with a heartbeat, if nothing wakes them."""
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
    program_flood: float = 30.0
    """An operator's program is ended if it prints lines faster than they are read for this time."""
    program_steady: float = 60.0
    """If an operator's program ends before this time, each restart is delayed more."""
    watch_silence: float = 75.0
    """A watch of the API server is ended after this time without an event: the API server sends a bookmark each minute
    (`defaultBookmarkFrequency` of k8s.io/apiserver, pkg/storage/cacher/cacher.go)."""
    watch_again: float = 2.0
    """Before what is watched is read again after a first failure."""
    watch_again_at_last: float = 60.0
    """The same, after many failures."""
    condition_beat: float = 300.0
    """Between two heartbeats of the node's condition: as node-problem-detector has it."""
    pause_rewrite: float = 30.0
    """A pause of GPU clients is written again after this time, because it counts only for a while."""
    labels_settle: float = 2.0
    """Labels are written once devices and configuration have not changed for so long."""
    labels_look: float = 60.0
    """Then file or object is looked at again: others may have changed it. Of the Node the watch tells."""


USUAL_WAITS = Waits()
