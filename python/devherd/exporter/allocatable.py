"""Asks the kubelet periodically which devices it has, once for all resource children, and writes each its answer."""

import asyncio
import logging
import time
from typing import NoReturn

import grpc.aio

from devherd import spool
from devherd.kubelet.pod_resources import allocatable_ids
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)


class AllocatableWriter:
    """The writer of `<run-dir>/allocatable`. While the kubelet does not answer, the files stay as they are."""

    def __init__(self, settings: Settings) -> None:
        self._socket = settings.pod_resources_socket
        self._period_seconds = settings.kubelet_check
        self._resources = settings.resources_directory
        self._directory = settings.allocatable_directory
        self._complaint = ""

    async def run(self) -> NoReturn:
        """Ask once every `kubelet_check`; never when that is 0."""
        while True:
            await asyncio.sleep(self._period_seconds or float("inf"))
            if self._socket.exists():
                await self._write()

    async def _write(self) -> None:
        asked = time.monotonic()
        try:
            listed = {spool.key_of(name): ids for name, ids in (await allocatable_ids(self._socket)).items()}
            served = spool.keys_in(self._resources)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            for key in served:
                answer = spool_pb2.Allocatable(asked_monotonic_seconds=asked, device_ids=sorted(listed.get(key, ())))
                spool.write(spool.path_of(self._directory, key), answer)
            for key in spool.keys_in(self._directory) - served:
                spool.remove(self._directory, key)
        except grpc.aio.AioRpcError as error:  # the exporter's other calls to the same socket log the failure
            log.debug("cannot ask %s which devices are allocatable: %s", self._socket, error)
        except OSError as error:
            if str(error) != self._complaint:
                log.warning(
                    "cannot write %s: %s; devices that the kubelet loses are not noticed", self._directory, error
                )
            self._complaint = str(error)
        else:
            self._complaint = ""
