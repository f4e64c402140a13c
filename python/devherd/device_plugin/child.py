"""The process of one resource type: serves the kubelet and keeps the resource registered until SIGTERM.

One loop owns everything, so nothing is locked, and its heartbeat shows that the RPCs are answered too. grpc is
imported before the fork, but no channel or server exists before `main` runs: gRPC does not survive a fork.
"""

import asyncio
import logging
import signal

from devherd import log as logs
from devherd import spool
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.device_plugin.registrar import Registrar
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.state import State
from devherd.device_plugin.watch import Watch
from devherd.history.record import History
from devherd.kubelet.endpoint import prefix
from devherd.kubelet.plugins_registry import FindingKubelet
from devherd.kubelet.registration_socket import Kubelet

log = logging.getLogger(__name__)

NAME_PREFIX = "resource:"


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until it has outgrown its sandbox."""
    return asyncio.run(ResourceChild(child).run())


class ResourceChild:
    """Two tasks: one beats and looks once a second, the other keeps the resource registered."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._key = child.name.removeprefix(NAME_PREFIX)
        self._resource = ResourceFile(child.settings.resources_directory, self._key)
        finds = child.settings.registration == "plugins_registry"
        self._kubelet = FindingKubelet(child.settings) if finds else Kubelet(child.settings)
        self._state: State | None = None
        self._stopped = asyncio.Event()
        self._is_outgrown = False

    async def run(self) -> int:
        """Until SIGTERM, or until only a new process can go on; the exit code.

        A defect in either task ends the process, and the supervisor starts another.
        """
        stopped = self._stopped
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        directories = {self._resource.path.parent, self._kubelet.path.parent, self._kubelet.directory}
        with Watch(directories, self._concerns, self._look) as watch:
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._beat(watch)), tasks.create_task(self._keep_registered())]
                await stopped.wait()
                self._resource.look()  # a removed file becomes an empty list before the streams end
                for task in work:
                    task.cancel()
        return RENEW if self._is_outgrown else 0

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
        logs.about(resource_name=self._resource.latest.name)
        path = spool.path_of(self._child.settings.state_directory, self._key)
        history = History(self._child.settings.history_directory, self._child.name)
        self._state = State(path, self._resource.latest.name, history, self._child.waits_for_the_kubelet)
        self._state.has_read(self._resource.latest.version)
        await Registrar(self._resource, self._kubelet, self._state).run()

    def _look(self) -> None:
        if not self._stopped.is_set() and self._child.has_outgrown_its_sandbox():
            log.info("a directory in use was created again: restarting, in a sandbox with the new directory")
            self._is_outgrown = True
            self._stopped.set()
            return
        self._resource.look()
        if self._state is not None:
            self._state.has_read(self._resource.latest.version)
        self._kubelet.changed.tell()

    def _concerns(self, entry: str) -> bool:
        """Whether an entry matters here: inotify wakes every child of the node for every entry of these directories."""
        if entry in (self._resource.path.name, self._kubelet.path.name):
            return True
        return self._resource.is_loaded and entry.startswith(prefix(self._resource.latest.name))
