"""Whether process `kubernetes` is needed, and what it finds that an earlier one has left."""

from devherd import spool
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ResolvedConfig
from devherd.proto import spool_pb2
from devherd.settings import Settings

LEFT_OVER_CURE = "`devherd labels --remove` removes them, with the rights of deploy/kubernetes/clean-nodes"
"""The cure if labels are left that this instance has no right to remove."""


def needs_process(config: ResolvedConfig, settings: Settings) -> bool:
    """Whether process `kubernetes` has anything to do under this configuration."""
    options, access = config.kubernetes, config.api_access()
    return (
        (options.events and access is not None)
        or config.is_dra
        or options.node_condition
        or options.nvidia_pause
        or config.node_labels.write != "none"
        or settings.configurations is not None
        or has_labels_to_remove(settings, access)
    )


def has_labels_to_remove(settings: Settings, access: ApiAccess | None) -> bool:
    """Whether an earlier configuration has left labels that can be removed: in a feature file, or by the API server."""
    if not settings.written_labels_file.exists():
        return False
    return access is not None or _written(settings) == "feature_file"


def notice_of_labels(config: ResolvedConfig, settings: Settings) -> str:
    """A notice about labels of an earlier configuration that cannot be removed; empty if there are none."""
    written = _written(settings)
    if config.node_labels.write != "none" or not written or has_labels_to_remove(settings, config.api_access()):
        return ""
    return (
        f"labels that devherd has written to the node by `node_labels: {{write: {written}}}` may be left, as"
        f" {settings.written_labels_file} shows, and there is no API server to talk to: {LEFT_OVER_CURE};"
        f" remove the file then"
    )


def _written(settings: Settings) -> str:
    return spool.read_or_empty(settings.written_labels_file, spool_pb2.WrittenLabels).write
