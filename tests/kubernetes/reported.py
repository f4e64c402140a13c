"""The problems that a process of the group `kubernetes` has reported."""

from devherd import spool
from devherd.proto.spool_pb2 import Problems
from devherd.settings import Settings


def problems_of(settings: Settings, process: str) -> list[tuple[str, str]]:
    """What each is about, and what is wrong."""
    reported = spool.read_or_empty(spool.path_of(settings.kubernetes_problems_directory, process), Problems)
    return [(problem.path, problem.error) for problem in reported.problems]
