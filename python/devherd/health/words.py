"""What takes a finding back, and why it still holds, in words for people."""

from devherd.health.clears import Evidence, Level, Quiet, Until
from devherd.health.held import Held
from devherd.health.seen import Now

_SHOWN = {
    Evidence.REBOUND: "binding its driver again",
    Evidence.READDED: "removing and adding it again",
    Evidence.REBOOTED: "a boot of the host",
    Evidence.RECOVERY_NONE: "its driver's word that it needs no recovery any more",
    Evidence.RECOVERY_UNASKED: "its driver's answer that it needs none",
    Evidence.SOURCE_CLEARED: "its source",
    Evidence.OPERATOR: "an operator",
}
"""By what."""


def way_back(held: Held, recover_after: int) -> str:
    """By what it is taken back."""
    clears, hold = held.meaning.clears, held.hold
    at_least = f", {hold:g} s after it was last seen at the earliest" if hold else ""
    if isinstance(clears, Level):
        return ("1 good look" if recover_after == 1 else f"{recover_after} good looks in a row") + at_least
    if isinstance(clears, Quiet):
        return f"{max(clears.seconds, hold):g} s without another event"
    if isinstance(clears, Until):
        *others, last = (_SHOWN[evidence] for evidence in Evidence if evidence in clears.evidence)
        return (f"{', '.join(others)} or {last}" if others else last) + at_least
    return f"{_SHOWN[Evidence.SOURCE_CLEARED]} or {_SHOWN[Evidence.OPERATOR]}{at_least}"


def not_yet(held: Held, recover_after: int, not_looked: str, now: Now) -> str:
    """Why it still holds, or does not count yet; empty for what is over."""
    if held.is_over:
        return ""
    if held.is_waiting:
        return f"it counts when it has stood for {held.meaning.after:g} s"
    if not_looked:
        is_level = isinstance(held.meaning.clears, Level)
        return f"not looked at: {not_looked}" + ("; `devherd clear` takes it back" if is_level else "")
    quiet_for = max(0.0, now.monotonic - held.last_monotonic)
    return _what_is_missing(held, recover_after, quiet_for) or _held_on(held, quiet_for)


def _what_is_missing(held: Held, recover_after: int, quiet_for: float) -> str:
    """Of its way back; empty when that was gone, and it is held for longer."""
    clears = held.meaning.clears
    if isinstance(clears, Level):
        looks = f"{held.good_looks} of {recover_after} good looks" if held.good_looks else "it is still seen"
        return looks if held.good_looks < recover_after else ""
    if held.is_taken_back:
        return ""
    if isinstance(clears, Quiet):
        return f"the last event was {quiet_for:.0f} s ago"
    return "nothing of that was seen since the last event"


def _held_on(held: Held, quiet_for: float) -> str:
    why = ": it comes and goes" if held.damped else ""
    return f"it is held for another {max(0.0, held.hold - quiet_for):.0f} s{why}"


def only_warned(held: Held, now: Now) -> str:
    """Why it is a warning although its reason makes devices Unhealthy; empty where that is not so."""
    if held.meaning.action != "unhealthy" or held.action == "unhealthy":
        return ""
    if held.was_there:
        return "already set at the first look at the device; a further bit makes it Unhealthy"
    seconds = max(0.0, held.doubted_until - now.monotonic)
    return f"its source condemns most devices at once; it counts in {seconds:.0f} s, or when another source agrees"
