"""The floor and the peer: the least that a device plugin in Python can be. A constant list, a constant answer.

    python bare_plugin.py KUBELET_DIR RESOURCE [RESOURCE ...]

With one resource it serves by itself; with several it forks a process for each when it has imported what they need. At
SIGUSR1 its device fails, or recovers.
"""

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

DEVICE = "dfl-port.0"
_OPTIONS = api.DevicePluginOptions()
_LISTS = [
    api.ListAndWatchResponse(devices=[api.Device(ID=DEVICE, health=health)]) for health in ("Healthy", "Unhealthy")
]
_NODE = api.DeviceSpec(host_path=f"/dev/{DEVICE}", container_path=f"/dev/{DEVICE}", permissions="rw")
_ANSWER = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(devices=[_NODE])])


class BarePlugin(DevicePluginServicer):
    """Constant answers."""

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:  # noqa: ARG002, N802
        """No options are set."""
        return _OPTIONS

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:  # noqa: ARG002, N802
        """One list, and another at each signal."""
        changed = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, changed.set)
        for device_list in itertools.cycle(_LISTS):
            yield device_list
            await changed.wait()
            changed.clear()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> api.PreferredAllocationResponse:  # noqa: ARG002, N802
        """No preference."""
        return api.PreferredAllocationResponse()

    async def PreStartContainer(self, request: Any, context: Any) -> api.PreStartContainerResponse:  # noqa: ARG002, N802
        """Do nothing."""
        return api.PreStartContainerResponse()

    async def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:  # noqa: ARG002, N802
        """A constant answer."""
        return _ANSWER


def socket_of(kubelet_dir: Path, resource: str) -> Path:
    """The socket of a resource's plugin."""
    return kubelet_dir / "device-plugins" / f"bare-{resource.replace('/', '_')[-32:]}.sock"  # below 108 bytes


@contextlib.contextmanager
def started(kubelet_dir: Path, *resources: str) -> Iterator[subprocess.Popen[bytes]]:
    """Bare plugins, by exec; the processes of several resources are forked from the one that is yielded."""
    command = [sys.executable, __file__, str(kubelet_dir), *resources]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for resource in resources:
            socket_of(kubelet_dir, resource).unlink(missing_ok=True)


async def serve(kubelet_dir: Path, resource: str) -> None:
    """Serve and register, then stay."""
    socket = socket_of(kubelet_dir, resource)
    server = grpc.aio.server()
    add_DevicePluginServicer_to_server(BarePlugin(), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{socket.with_name('kubelet.sock')}") as channel:
        request = api.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name=resource)
        await RegistrationStub(channel).Register(request)
    await server.wait_for_termination()


def main(kubelet_dir: Path, resources: list[str]) -> None:
    """Serve one resource, or fork for each of several."""
    if len(resources) == 1:
        asyncio.run(serve(kubelet_dir, resources[0]))
    gc.collect()
    gc.freeze()
    for resource in resources:
        if os.fork() == 0:
            asyncio.run(serve(kubelet_dir, resource))
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
