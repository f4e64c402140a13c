"""What a support archive shows of a configuration: everything but what looks like a secret."""

import re
from typing import Any

LEFT_OUT = "(left out)"
_SECRET = re.compile(r"pass(word|wd)?|secret|token|credential|api[-_]?key|private[-_]?key|auth", re.IGNORECASE)
_OPTION = re.compile(r"(?P<name>-{0,2}[\w.-]+)=.*", re.DOTALL)


def redacted(value: Any, name: str = "") -> Any:
    """Without the values of keys that are called so, and without what commands give as `--token=…` and `--token …`."""
    if isinstance(value, dict):
        return {key: redacted(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [LEFT_OUT if _follows_a_secrets_name(value, at) else redacted(one, name) for at, one in enumerate(value)]
    if _SECRET.search(name):
        return LEFT_OUT
    if isinstance(value, str) and (option := _OPTION.fullmatch(value)) and _SECRET.search(option["name"]):
        return f"{option['name']}={LEFT_OUT}"
    return value


def _follows_a_secrets_name(words: Any, at: int) -> bool:
    before = words[at - 1] if at else ""
    return isinstance(before, str) and before.startswith("-") and "=" not in before and bool(_SECRET.search(before))
