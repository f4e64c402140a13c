"""What the processes of the group `kubernetes` are to do: the requests that the scanner writes, one file each."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from devherd.config.resolved import Config
from devherd.configurations import Configurations
from devherd.kubernetes.access import Access
from devherd.settings import Settings

SUFFIX = ".api"
REQUEST = f"events{SUFFIX}"
"""Its file in `<run-dir>/requests`: that of process `kubernetes:events`."""
LABELS = f"labels{SUFFIX}"
"""That of process `kubernetes:labels`."""
CHOICE = f"config{SUFFIX}"
"""That of process `kubernetes:config`."""
_MACHINE = Path("sys/class/dmi/id/product_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Beside Events."""

    node_condition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsRequest:
    """Which labels are to be written, and how."""

    write: str = "none"
    omit: list[str] = field(default_factory=list)
    feature_file: str = ""
    """As this process reaches it, where that is the way."""
    machine: str = ""
    """What the firmware calls the machine."""

    @classmethod
    def of(cls, content: bytes) -> "LabelsRequest | None":
        """What a request asks for; None where it cannot be read."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class WrittenLabels:
    """How labels were written last: they are taken back in the same way."""

    write: str
    feature_file: str

    @classmethod
    def of(cls, content: bytes) -> "WrittenLabels | None":
        """None where none were written."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None

    def content(self) -> bytes:
        """For its file."""
        return json.dumps(asdict(self)).encode()


def written_labels(settings: Settings) -> WrittenLabels | None:
    """How labels were written last; None where there are none of devherd's."""
    try:
        return WrittenLabels.of(written_labels_file(settings).read_bytes())
    except OSError:
        return None


def written_labels_file(settings: Settings) -> Path:
    """Its file, written by process `kubernetes:labels`: labels outlive a boot, and so must the knowledge of them."""
    return (settings.lasting_directory or settings.told_directory) / "labels.json"


def requests_for(config: Config, settings: Settings) -> dict[str, str]:
    """By file: no Events where there is no API server that this pod may talk to.

    Labels that were written before are taken back by the process that writes them, so it runs until they are.
    """
    requests = {}
    options = config.kubernetes
    if options.events and Access.of_this_pod() is not None:
        requests[REQUEST] = json.dumps(asdict(Request(node_condition=options.node_condition)))
    if config.node_labels.write != "none" or written_labels_file(settings).exists():
        requests[LABELS] = json.dumps(asdict(_labels(config)))
    chosen_from = config.settings().configurations
    if chosen_from is not None:
        requests[CHOICE] = json.dumps(asdict(chosen_from), default=str)
    return requests


def configurations_in(content: bytes) -> Configurations | None:
    """From which directory a label chooses, and which; None where that cannot be read."""
    try:
        said = json.loads(content)
        return Configurations(**(said | {"directory": Path(said["directory"])}))
    except (ValueError, TypeError, KeyError):
        return None


def request_in(content: bytes) -> Request:
    """What a request asks for; nothing beside Events where it cannot be read."""
    try:
        return Request(**json.loads(content))
    except (ValueError, TypeError):
        return Request()


def machine_of(host_root: Path) -> str:
    """What the firmware calls the machine; empty when that is unknown."""
    try:
        return (host_root / _MACHINE).read_text(errors="replace").strip()
    except OSError:
        return ""


def _labels(config: Config) -> LabelsRequest:
    return LabelsRequest(
        write=config.node_labels.write,
        omit=config.node_labels.omit,
        feature_file=str(config.feature_file) if config.node_labels.write == "feature_file" else "",
        machine=machine_of(config.host_root),
    )
