"""What a support archive shows of a configuration: everything but what looks like a secret."""

import re
from typing import Any

LEFT_OUT = "(left out)"
_SECRET = re.compile(r"pass(word|wd)?|secret|token|credential|api[-_]?key|private[-_]?key|auth", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=//)[^/\s]*@")
"""Of a URL."""
_OPTION = re.compile(r"(?P<name>-{0,2}[\w.-]+)=.*", re.DOTALL)


def redacted(value: Any, name: str = "") -> Any:
    """Without the values of keys that are called so, what options like `--token` give, and the logins of URLs.

    Of a `command` the program alone is shown: what an argument means is the program's to say.
    """
    words = value.split() if isinstance(value, str) else value
    if name == "command" and isinstance(words, list) and words:
        return [redacted(words[0]), *(LEFT_OUT for _ in words[1:])]
    if isinstance(value, dict):
        return {key: redacted(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [LEFT_OUT if _follows_a_secrets_name(value, at) else redacted(one, name) for at, one in enumerate(value)]
    if _SECRET.search(name):
        return LEFT_OUT
    if isinstance(value, str) and (option := _OPTION.fullmatch(value)) and _SECRET.search(option["name"]):
        return f"{option['name']}={LEFT_OUT}"
    return _LOGIN.sub(f"{LEFT_OUT}@", value) if isinstance(value, str) else value


def _follows_a_secrets_name(words: Any, at: int) -> bool:
    before = words[at - 1] if at else ""
    return isinstance(before, str) and before.startswith("-") and "=" not in before and bool(_SECRET.search(before))
