"""The configuration in force: plain values, validated and complete, with all defaults applied.

Its sections are generated (sections.py); other values that follow from the file are here. One process writes it to
`<run-dir>/config.json` for the others. `selects` decides which devices a selector matches.
"""

import functools
import json
import logging
import time
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from devherd.config import sections
from devherd.config.api_access import ApiAccess
from devherd.config.web import Web
from devherd.log import Once
from devherd.reasons.registry import NVML
from devherd.settings import Settings
from devherd.spool import identity_of, replace

if TYPE_CHECKING:
    from devherd.inventory import Entry


log = logging.getLogger(__name__)

Part = TypeVar("Part")

DEVICE_PLUGIN_ALONE = ("device-plugin",)
"""The ways in which containers get devices where the device plugin alone serves them."""
BY_CDI_ALONE = ("cdi",)
"""The ways where Dynamic Resource Allocation alone serves them."""

_WAIT_SECONDS = 0.1
"""Time between two attempts to read a missing configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig(sections.Config):
    """The whole configuration. Paths in `common` are absolute."""

    common: Settings
    web: Web = field(default_factory=Web)
    """Who may read the exporter's pages; paths are absolute."""
    api: ApiAccess | None = None
    """The access to the API server by a kubeconfig file; None without one. See `api_access`."""
    vendors: dict[str, sections.VendorOptions] = field(default_factory=dict)
    """Options by section of the configuration file; a vendor without a section has none."""
    mps_root: str | None = None
    """The directory of the MPS control daemon; None if it is not configured."""
    device_info_dir: Path | None = None
    """The directory of device-info files for Multus, as a path on the host; None if no device has one."""
    pools: list[str] = field(default_factory=list)
    """The resources that are offered even without devices: the pools of RDMA devices."""
    ways: tuple[str, ...] = DEVICE_PLUGIN_ALONE
    """The ways in which containers get devices: `device-plugin`, `cdi`."""
    native: str = "{}"
    warnings: list[str] = field(default_factory=list)
    """A line for each valid setting that has no effect on any node: place, problem, cure."""

    @property
    def is_dra(self) -> bool:
        """Whether the node's devices are served by Dynamic Resource Allocation."""
        return self.front_end == "dra"

    @property
    def way(self) -> str:
        """The way of the node's front end: `device-plugin`, `cdi`."""
        return (BY_CDI_ALONE if self.is_dra else DEVICE_PLUGIN_ALONE)[0]

    def settings(self) -> Settings:
        """The common options."""
        return self.common

    def api_access(self) -> ApiAccess | None:
        """The access to the API server; None where there is none: a named kubeconfig wins over the pod's account."""
        return self.api if self.common.kubeconfig else ApiAccess.of_this_pod()

    def native_json(self, nvml_answer: Path | None = None) -> str:
        """The settings of `_native.Scanner`: rust/src/settings.rs names the keys.

        `nvml_answer` is the file with NVML's facts; a simulated node has its own.
        """
        labels = self.node_labels.write != "none"
        answer = None if NVML in self.health.sources_off else nvml_answer
        host = native_settings(self.host_root, answer, self.resources, labels=labels, ways=self.ways)
        return json.dumps(json.loads(self.native) | host)

    @property
    def host_root(self) -> Path:
        """The directory with the host's sys/, proc/ and dev/."""
        return self.common.host_root

    @property
    def cdi_directory(self) -> Path:
        """The directory of CDI specs, below the host root."""
        return self._on_host(self.cdi_dir)

    @property
    def device_info_directory(self) -> Path | None:
        """The directory of device-info files, below the host root."""
        return None if self.device_info_dir is None else self._on_host(self.device_info_dir)

    @property
    def feature_file(self) -> Path:
        """The file that Node Feature Discovery reads labels from, below the host root."""
        return self._on_host(self.node_labels.feature_file)

    @property
    def directories_for_others(self) -> list[Path]:
        """The directories into which the scanner writes files for container runtimes and CNI plugins."""
        return [self.cdi_directory, *filter(None, (self.device_info_directory,))]

    def _on_host(self, path: Path) -> Path:
        return self.host_root.absolute() / path.relative_to("/")

    @property
    def source(self) -> Path | None:
        """The file from which it was read; None without a file."""
        return self.common.config_path


class ResolvedFileError(Exception):
    """The file is missing or cannot be read: path and reason."""


def write_resolved(path: Path, config: ResolvedConfig) -> None:
    """Replace the file with this configuration, with mode 0600. Raises OSError."""
    replace(path, as_json(config), mode=0o600)


def as_json(config: ResolvedConfig) -> bytes:
    """The configuration as JSON, for `from_json`."""
    return json.dumps(asdict(config), default=str).encode()


def from_json(content: bytes | str) -> ResolvedConfig:
    """The configuration that `as_json` wrote. Raises ValueError."""
    try:
        config: ResolvedConfig = _built(ResolvedConfig, json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a resolved configuration: {error}") from error
    return config


def read_resolved(path: Path) -> ResolvedConfig:
    """The configuration in force. Raises ResolvedFileError."""
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise ResolvedFileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ResolvedFileError(f"{path}: {error}") from error


def awaited_config(path: Path, beat: Callable[[], object]) -> ResolvedConfig:
    """The configuration in force. Waits while its file is missing: the supervisor restores it within a second."""
    complaint = Once(log.warning)
    while True:
        try:
            return read_resolved(path)
        except ResolvedFileError as error:
            complaint.complain("%s; waiting for it", error)
        beat()
        time.sleep(_WAIT_SECONDS)


class ConfigPart(Generic[Part]):
    """A part of the configuration in force, and whether it has changed. An unreadable file counts as unchanged."""

    def __init__(self, path: Path, part_of: Callable[[ResolvedConfig], Part], beat: Callable[[], object]) -> None:
        """Waits as `awaited_config` does."""
        self._path, self._part_of = path, part_of
        self._seen = identity_of(path)
        self.value = part_of(awaited_config(path, beat))

    def has_changed(self) -> bool:
        """Whether this part of the configuration in force has changed."""
        seen = identity_of(self._path)
        if seen != self._seen:
            try:
                if self._part_of(read_resolved(self._path)) != self.value:
                    return True
            except ResolvedFileError:
                return False
            self._seen = seen
        return False


def _built(kind: Any, value: Any) -> Any:
    """A value from JSON, converted to the declared type of its field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _instance(kind, value)
    if origin is types.UnionType:
        return None if value is None else _built(next(each for each in arguments if each is not type(None)), value)
    if origin is list:
        return [_built(arguments[0], each) for each in value]
    if origin is dict:
        return {key: _built(arguments[1], each) for key, each in value.items()}
    if origin is tuple:
        return tuple(_built(arguments[0], each) for each in value)
    return Path(value) if kind is Path else value


def _instance(kind: type[Any], values: Mapping[str, Any]) -> Any:
    kinds = _kinds(kind)  # type: ignore[arg-type] # a type is hashable
    return kind(**{name: _built(kinds[name], value) for name, value in values.items()})


@functools.cache
def _kinds(kind: type[Any]) -> dict[str, Any]:
    """The types of its fields."""
    return {each.name: each.type for each in fields(kind)}


def selects(match: sections.Match, facts: Mapping[str, str]) -> bool:
    """Whether the selector matches a device with these facts, and none of its exceptions does."""
    return fits(match, facts) and not any(fits(exception, facts) for exception in match.exclude)


def fits(selector: sections.Selector, facts: Mapping[str, str]) -> bool:
    """Whether the device has every fact of the selector, and each fits one of its globs; case-sensitive."""
    return all(fact in facts and fits_any(facts[fact], globs) for fact, globs in selector.facts.items())


def fits_any(word: str, globs: Iterable[str]) -> bool:
    """Whether a word fits one of these globs; case-sensitive."""
    return any(word == glob if _WILD.isdisjoint(glob) else fnmatchcase(word, glob) for glob in globs)


_WILD = frozenset("*?[")


def facts_of(entry: "Entry") -> dict[str, str]:
    """The facts that selectors can name: a device's attributes, its vendor as in the file, its id and resource name."""
    return entry.device.attributes | {
        "vendor": entry.vendor.replace("-", "_"),
        "id": entry.device.id,
        "resource_name": entry.resource_name,
    }


MARK = ".devherd-simulated-node"
"""File in the root of a simulated node, below which plain files may stand for device nodes."""

NVML_ANSWER = ".devherd-nvml.json"
"""File in the root of a simulated node with NVML: its answer (rust/src/nvml/facts.rs)."""


def is_simulated(host_root: Path) -> bool:
    """Whether the tree below `host_root` is a simulated node."""
    return (host_root / MARK).exists()


NVML_FACTS = frozenset(
    {"addressing_mode", "architecture", "brand", "compute_capability", "cuda_version", "memory_bytes"}
)
"""Facts of whole GPUs that only NVML reports, not the driver's files."""


def native_settings(
    host_root: Path,
    nvml_answer: Path | None = None,
    rules: Iterable[Any] = (),
    *,
    labels: bool = False,
    ways: Iterable[str] = DEVICE_PLUGIN_ALONE,
) -> dict[str, Any]:
    """Values for `Settings` in rust/src/settings.rs; `rules` are the configuration's `resources`.

    NVML is asked if devices, a rule or the node's labels need it; never if no answer file is named.
    """
    files = [str(file) for file in nvml_answers(host_root, nvml_answer)]
    nvml = {"answers": files, "needed": labels or _need_nvml(rules)}
    return {"simulated_host": is_simulated(host_root), "nvml": nvml, "ways": [*ways]}


def nvml_answers(host_root: Path, nvml_answer: Path | None) -> list[Path]:
    """The files that can have NVML's answer: the first that exists counts. A simulated node has its own file."""
    simulated = [host_root.absolute() / NVML_ANSWER] if is_simulated(host_root) else []
    return [*simulated, *([nvml_answer] if nvml_answer else [])]


def _need_nvml(rules: Iterable[Any]) -> bool:
    """Whether a rule matches a fact of NVIDIA's GPUs that only NVML reports."""
    selectors = (selector for rule in rules for selector in (rule.match, *rule.match.exclude))
    return any(NVML_FACTS & selector.facts.keys() for selector in selectors)
