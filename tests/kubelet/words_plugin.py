"""A plugin whose answers are errors, each by the id of a device: `python words_plugin.py SOCKET RESOURCE`."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer, add_DevicePluginServicer_to_server


class Plugin(DevicePluginServicer):
    """One device: what is asked for is what is answered."""

    def __init__(self, device):
        self._device = device

    def GetDevicePluginOptions(self, _request, _context):
        return api.DevicePluginOptions(pre_start_required=self._device == "late-start")

    def ListAndWatch(self, _request, context):
        yield api.ListAndWatchResponse(devices=[api.Device(ID=self._device, health="Healthy")])
        while context.is_active():
            time.sleep(0.1)

    def Allocate(self, _request, context):
        match self._device:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "too-large":
                return answer(envs={"A": "x" * 5_000_000})
            case "long":
                context.abort(grpc.StatusCode.INTERNAL, "y" * 20_000)
            case "odd-letters":
                context.abort(grpc.StatusCode.INTERNAL, 'é "quoted"\n\t%20 \U0001f600')
            case "not-implemented":
                return super().Allocate(_request, context)
        return answer(envs={"A": "1"})

    def PreStartContainer(self, _request, _context):
        os.kill(os.getpid(), signal.SIGSTOP)  # or its library would answer that the deadline is over, at times first
        time.sleep(60)


def answer(**fields):
    """To Allocate for one container."""
    return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**fields)])


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_metadata_size", 1 << 20)])
    add_DevicePluginServicer_to_server(Plugin(sys.argv[2]), server)
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    server.start()
    print("serves", flush=True)
    server.wait_for_termination()
