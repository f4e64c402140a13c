"""The variables of NVIDIA's plugin that say which Xids make a device Unhealthy (its internal/rm/health.go)."""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd.health.xids import OF_PLUGIN_IGNORED
from devherd.importers.imported import Imported

_DISABLE, _ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
VARIABLES = (_DISABLE, _ENABLE)


def put(variables: Mapping[str, str], imported: Imported) -> None:
    """Have Xids do what they do there, if either variable is set; an Xid that is enabled counts, disabled or not."""
    disabled, enabled = (variables.get(name, "").strip().lower() for name in VARIABLES)
    if disabled == "all" or "xids" in disabled:
        imported.say("health", {"rules": [{"reason": "xid", "action": "ignore"}]})
        imported.note(f"{_DISABLE} is taken for Xids: what else is found wrong with a GPU still counts")
    elif disabled or enabled:
        xid: dict[Any, str] = {"policy": "plugin"}
        xid |= dict.fromkeys(_codes(_DISABLE, disabled, imported), "ignore")
        every = enabled == "all"
        counting = sorted(OF_PLUGIN_IGNORED | {code for code in xid if code != "policy"}) if every else ()
        xid |= dict.fromkeys(counting or _codes(_ENABLE, enabled, imported), "unhealthy")
        imported.say("health.xid", xid)


def _codes(variable: str, text: str, imported: Imported) -> Iterator[int]:
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word.isascii() and word.isdigit():
            yield int(word)
        else:
            imported.note(f"{variable}: `{word}` is left out: it is not an Xid")
