"""Process `holders`: writes which pods hold which devices, for the scanner, while a device is gone.

The kubelet treats an id that is in no list as Healthy (UpdateAllocatedResourcesStatus in pkg/kubelet/cm/devicemanager),
so a gone device stays listed as Unhealthy while a pod holds it. The scanner itself does not call the kubelet.
"""

import asyncio
import logging
from pathlib import Path
from typing import NoReturn

import grpc.aio

from devherd import spool
from devherd.inventory import Allocations
from devherd.kubelet.pod_resources import ask_beside_the_heartbeat, list_pods, parse
from devherd.log import Once
from devherd.process import Child
from devherd.proto import spool_pb2

ASK_SECONDS = 10.0
"""Time between two calls of the kubelet."""

log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until it has outgrown its sandbox."""
    file = child.settings.holders_file
    code = asyncio.run(ask_beside_the_heartbeat(child, _keep(file, child.settings.pod_resources_socket)))
    if code == 0:
        file.unlink(missing_ok=True)  # the next gone device must not get an old answer
    return code


async def _keep(file: Path, socket: Path) -> NoReturn:
    """Write the file for ever. It stays unchanged while the kubelet does not answer."""
    complaint, written = Once(log.warning), None
    while True:
        try:
            message = message_of(parse(await list_pods(socket)))
            if message != written:
                spool.write(file, message)
            complaint.over()
            written = message
        except (grpc.aio.AioRpcError, OSError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            complaint.complain("cannot ask %s which pods hold the devices that are gone: %s", socket, why)
        await asyncio.sleep(ASK_SECONDS)


def message_of(allocations: Allocations) -> spool_pb2.Holders:
    """The message about these allocations."""
    message = spool_pb2.Holders()
    for (resource_name, device_id), holders in sorted(allocations.items()):
        pods = sorted({f"{holder['namespace']}/{holder['pod']}" for holder in holders})
        message.devices.add(resource_name=resource_name, device_id=device_id, pods=pods)
    return message
