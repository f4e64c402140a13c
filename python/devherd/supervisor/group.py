"""supervisord's groups, which do not wait for ever at the end: a process that sleeps in the kernel cannot be killed."""

from supervisor.options import ProcessGroupConfig
from supervisor.process import ProcessGroup

from devherd.supervisor.process import Process


class Group(ProcessGroup):
    """The processes of one group."""

    processes: dict[str, Process]

    def get_unstopped_processes(self) -> list[Process]:
        """Those whose end supervisord has to wait for."""
        unstopped: list[Process] = super().get_unstopped_processes()
        return [process for process in unstopped if not process.is_beyond_help()]


class GroupConfig(ProcessGroupConfig):
    """What makes a Group."""

    def make_group(self) -> Group:
        """Its processes, none of them started."""
        return Group(self)
