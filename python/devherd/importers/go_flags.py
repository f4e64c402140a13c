"""Flags of Go programs: `-name value`, `--name=value`, and `-name` alone where it is a switch.

<https://pkg.go.dev/flag>: one dash or two, values of switches only behind `=`; numbers and truth values as
<https://pkg.go.dev/strconv> reads them.
"""

import re
from collections.abc import Collection, Sequence

from devherd.errors import UsageError

LOG_SWITCHES = frozenset(
    {"logtostderr", "alsologtostderr", "add_dir_header", "one_output", "skip_headers", "skip_log_headers"}
    | {"legacy_stderr_threshold_behavior"}
)
LOG_FLAGS = LOG_SWITCHES | {"v", "stderrthreshold", "alsologtostderrthreshold", "vmodule", "log_backtrace_at"}
LOG_FLAGS |= {"log_dir", "log_file", "log_file_max_size", "log_link", "logbuflevel"}
"""Those of klog and of glog, which Go plugins log with."""
LOG_REASON = "see `log_level` and `log_format`"

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def flags(words: Sequence[str], switches: Collection[str], known: Collection[str]) -> dict[str, list[str]]:
    """Flag name to its values in order; a switch without a value is `true`.

    Raises UsageError for a flag that is not known or lacks its value.
    """
    values: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, separator, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            raise UsageError(f"`{word}` is not a flag of this plugin", "it is not known", f"known are {_listed(known)}")
        if not separator:
            if name not in switches and not rest:
                raise UsageError(f"`{word}` has no value", "it needs one", f"write {word}=VALUE")
            value = "true" if name in switches else rest.pop(0)
        values.setdefault(name, []).append(value)
    return values


def truth(text: str, name: str) -> bool:
    """A truth value as strconv.ParseBool reads it. Raises UsageError, as the plugin refuses to start."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UsageError(f"{name} is {text!r}", "it is neither true nor false", "write true or false")


def number(text: str) -> int | str:
    """A number as strconv.ParseInt reads it: decimal, 0x, 0b, 0o, and octal behind a 0.

    Other text stays as it is, for the configuration's own check to refuse.
    """
    plain = re.sub(r"^([+-]?)0(?=[0-7])", r"\g<1>0o", text)
    try:
        return int(plain, 0)
    except ValueError:
        return text


def _listed(known: Collection[str]) -> str:
    return ", ".join(f"-{name}" for name in sorted(known))
