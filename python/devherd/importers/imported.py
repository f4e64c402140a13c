"""Settings of another plugin as read, which of them were not translated, and the resulting configuration."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from devherd.config.errors import echo
from devherd.errors import UsageError

LABELS = "labels are written on request: `node_labels` in docs/node-labels.md"
LOG_SWITCHES = frozenset(
    {"logtostderr", "alsologtostderr", "add_dir_header", "one_output", "skip_headers", "skip_log_headers"}
    | {"legacy_stderr_threshold_behavior"}
)
LOG_FLAGS = LOG_SWITCHES | {"v", "stderrthreshold", "alsologtostderrthreshold", "vmodule", "log_backtrace_at"}
LOG_FLAGS |= {"log_dir", "log_file", "log_file_max_size", "log_link", "logbuflevel"}
"""Flags of klog and glog, the logging libraries of Go plugins."""
LOG_REASON = "see `log_level` and `log_format`"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(slots=True)
class Imported:
    """A devherd configuration as plain data, and notes for the user, a sentence each."""

    plugin: str
    config: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    name: str = ""
    """The origin of the settings: a key of a ConfigMap, a workload."""
    serves_the_same: bool = True
    """True if devherd serves the same devices with it as the plugin did; otherwise a note names the difference."""
    is_whole: bool = True
    """False if something was left out that may have had an effect."""
    is_default: bool = False
    """True if nodes without a choice of their own use it, of several configurations."""
    vendor: str = ""
    """The vendor of its devices, as devherd's chart calls it; empty for any."""
    components: tuple[str, ...] = ()
    """Components of devherd's manifests that it needs, beside those that follow from its vendor and options."""

    def put(self, section: str, options: dict[str, Any]) -> None:
        """Put options into a section, for example `vendors.nvidia`; without options, no section is made."""
        if not options:
            return
        place = self.config
        for key in section.split("."):
            place = place.setdefault(key, {})
        place.update(options)

    def note(self, text: str) -> None:
        """Add a note for the user, if it is new."""
        if text not in self.notes:
            self.notes.append(text)

    def note_loss(self, text: str) -> None:
        """Add a note on something left out that may have had an effect."""
        self.note(text)
        self.is_whole = False

    def note_difference(self, text: str) -> None:
        """Add a note on devices that are not served as before."""
        self.note_loss(text)
        self.serves_the_same = False

    def note_left_out(self, names: Iterable[str], reasons: Mapping[str, str], otherwise: str) -> None:
        """Add a note on settings that are left out, one a reason: the setting's own, its section's, or `otherwise`.

        A setting with a reason of its own has no effect here, or a counterpart of another kind; any other is a loss.
        """
        by_reason: dict[str, list[str]] = {}
        for name in names:
            sections = accumulate(name.split("."), lambda section, key: f"{section}.{key}")
            found = [reasons[each] for each in sections if each in reasons]
            self.is_whole &= bool(found)
            by_reason.setdefault(found[-1] if found else otherwise, []).append(name)
        for reason, those in by_reason.items():
            self.note(f"{', '.join(those)} {'is' if len(those) == 1 else 'are'} left out: {reason}")


class GivenSettings:
    """A mapping of settings, and its sections. `left` names settings in full, for example `flags.gfd.oneshot`."""

    def __init__(self, content: Mapping[str, Any], prefix: str = "") -> None:
        self._content = content
        self._prefix = prefix
        self._taken: set[str] = set()
        self._sections: dict[str, GivenSettings] = {}

    def take(self, key: str, default: Any = None) -> Any:
        """The value, which then counts as translated; null counts as absent."""
        self._taken.add(key)
        value = self._content.get(key)
        return default if value is None else value

    def section(self, key: str) -> "GivenSettings":
        """A mapping inside it, empty if absent. Raises UsageError for another kind of value."""
        if key not in self._sections:
            content = self.take(key, {})
            if not isinstance(content, Mapping):
                raise not_keys(f"{self._prefix}{key}", content)
            self._sections[key] = GivenSettings(content, f"{self._prefix}{key}.")
        return self._sections[key]

    def items(self, key: str) -> list[Any]:
        """The items of a list inside it, empty if absent. Raises UsageError for another kind of value."""
        return listed(f"{self._prefix}{key}", self.take(key))

    def left(self) -> Iterator[str]:
        """The full names of the settings that have a value and were not taken."""
        for key, value in self._content.items():
            if key in self._sections:
                yield from self._sections[key].left()
            elif key not in self._taken and value is not None:
                yield f"{self._prefix}{key}"


def in_any_case(content: Any, known: Collection[str]) -> Any:
    """The content of a JSON file with its known keys, at any depth, as they are written in `known`.

    Go's encoding/json reads keys in any case, and the last of several that are the same then:
    <https://pkg.go.dev/encoding/json#Unmarshal>.
    """
    names = {name.casefold(): name for name in known}
    if isinstance(content, Mapping):
        return {names.get(str(key).casefold(), key): in_any_case(value, known) for key, value in content.items()}
    return [in_any_case(item, known) for item in content] if isinstance(content, list) else content


def not_keys(name: str, value: Any) -> UsageError:
    """The error for a value that must be a mapping and is not."""
    return UsageError(f"`{name}` is not a section", f"it is {echo(value)}", "give it keys, one a line and indented")


def listed(name: str, value: Any) -> list[Any]:
    """The items of a list, empty for null. Raises UsageError if the value is not a list."""
    if isinstance(value, list | None):
        return value or []
    cure = "begin each item with `- ` on a line of its own"
    raise UsageError(f"`{name}` is not a list", f"it is {echo(value)}", cure)


def flags(words: Sequence[str], switches: Collection[str], known: Collection[str]) -> dict[str, list[str]]:
    """The values of each flag, in order; a switch without a value is `true`.

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


def without_file(plugin: str, path: str) -> UsageError:
    """The error for a plugin whose resources are defined in a file that is missing here."""
    return UsageError(
        f"the resources of {plugin} are not in what is imported",
        f"they are in its file {path}",
        "give the file, or its ConfigMap and the DaemonSet in one stream: `kubectl get daemonset,configmap -o yaml`",
    )


def truth(text: str, name: str) -> bool:
    """A truth value as Go's strconv.ParseBool reads it. Raises UsageError if the plugin would refuse it."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UsageError(f"{name} is {text!r}", "it is neither true nor false", "write true or false")


def number(text: str) -> int | str:
    """A number as Go's strconv.ParseInt reads it: decimal, 0x, 0b, 0o, and octal after a leading 0.

    Returns other text unchanged; the check of the configuration refuses it.
    """
    plain = re.sub(r"^([+-]?)0(?=[0-7])", r"\g<1>0o", text)
    try:
        return int(plain, 0)
    except ValueError:
        return text


def _listed(known: Collection[str]) -> str:
    return ", ".join(f"-{name}" for name in sorted(known))
