"""The process of one resource type: serves the kubelet and keeps the resource registered until SIGTERM.

One loop owns everything, so nothing is locked, and a heartbeat from it says that the RPCs are answered too. grpc is
imported before the fork, but no channel or server exists before `main` runs: gRPC does not survive a fork.
"""

import asyncio
import logging
import signal

from devherd import spool
from devherd.child import BEAT_PERIOD_SECONDS, Child
from devherd.plugin.endpoint import prefix
from devherd.plugin.keeper import Keeper
from devherd.plugin.kubelet import Kubelet
from devherd.plugin.plugins_registry import FindingKubelet
from devherd.plugin.resource_file import ResourceFile
from devherd.plugin.state import State
from devherd.plugin.watch import Watch

NAME_PREFIX = "resource:"


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    logging.getLogger("grpc").setLevel(logging.WARNING)  # at debug it tells of each turn of the loop
    asyncio.run(ResourceChild(child).run())
    return 0


class ResourceChild:
    """Two tasks: one beats and looks once a second, the other keeps the resource registered."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._key = child.name.removeprefix(NAME_PREFIX)
        self._resource = ResourceFile(child.settings.resources_directory, self._key)
        finds = child.settings.registration == "plugins_registry"
        self._kubelet = FindingKubelet(child.settings) if finds else Kubelet(child.settings)
        self._state: State | None = None

    async def run(self) -> None:
        """Until SIGTERM. A defect in either task ends the process, and the supervisor starts another."""
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        directories = {self._resource.path.parent, self._kubelet.path.parent, self._kubelet.directory}
        with Watch(directories, self._concerns, self._look) as watch:
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._beat(watch)), tasks.create_task(self._keep_registered())]
                await stopped.wait()
                self._resource.look()  # a file that has gone is told as an empty list before the streams end
                for task in work:
                    task.cancel()

    async def _beat(self, watch: Watch) -> None:
        while True:
            self._child.beat()
            watch.add_missing()
            self._look()
            if self._state is not None:
                self._state.keep()
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    async def _keep_registered(self) -> None:
        await self._resource.loaded()
        path = spool.path_of(self._child.settings.state_directory, self._key)
        self._state = State(path, self._resource.latest.name)
        await Keeper(self._resource, self._kubelet, self._state).run()

    def _look(self) -> None:
        self._resource.look()
        self._kubelet.changed.tell()

    def _concerns(self, entry: str) -> bool:
        """Every child of the node is woken for every entry of these directories: most are none of its business."""
        if entry in (self._resource.path.name, self._kubelet.path.name):
            return True
        return self._resource.is_loaded and entry.startswith(prefix(self._resource.latest.name))
