"""The device plugin of the scenarios: does as the scenario says and notes every call."""

import itertools
import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as registration
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationServicer, add_RegistrationServicer_to_server

_numbers = itertools.count()


def device(name: str, told: dict) -> v1beta1.Device:
    """A device as ListAndWatch sends it; `numa: []` is a topology without nodes."""
    nodes = told.get("numa")
    topology = v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=node) for node in nodes]) if nodes is not None else None
    return v1beta1.Device(ID=name, health=told.get("health", "Healthy"), topology=topology)


class ScenarioPlugin(DevicePluginServicer, RegistrationServicer):
    """Serves one resource on a socket of its own. The knobs are those of a scenario's `plugin` step."""

    def __init__(self, resource: str, devices: dict, **knobs) -> None:
        self.resource = resource
        self.devices = devices
        self.calls: list[list] = []
        self.told: list[dict] = []
        self.knobs = knobs
        self.endpoint = knobs.get("endpoint", f"s{next(_numbers)}.sock")
        self._streams: list[queue.Queue[dict | None]] = []
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_DevicePluginServicer_to_server(self, self._server)
        add_RegistrationServicer_to_server(self, self._server)

    def serve(self, directory: Path) -> None:
        """Listen on a fresh socket in a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        self._server.add_insecure_port(f"unix:{directory / self.endpoint}")
        self._server.start()

    def register(self, directory: Path) -> str:
        """Call Register; the refusal, empty when there was none."""
        request = v1beta1.RegisterRequest(
            version=self.knobs.get("version", "v1beta1"), endpoint=self.endpoint, resource_name=self.resource
        )
        with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
            try:
                RegistrationStub(channel).Register(request, timeout=15)
            except grpc.RpcError as refused:
                return f"{refused.code().name}: {refused.details()}"
        return ""

    def send(self, devices: dict) -> None:
        """A new list."""
        self.devices = devices
        for stream in self._streams:
            stream.put(devices)

    def stop(self) -> None:
        """End the stream and the server."""
        for stream in self._streams:
            stream.put(None)
        self._server.stop(None).wait()

    @property
    def streams(self) -> int:
        """The number of streams that were ever open."""
        return len(self._streams)

    def taken_calls(self) -> list[list]:
        """The calls since the last look."""
        taken, self.calls = self.calls, []
        return taken

    def GetInfo(self, request, context):
        versions = self.knobs.get("versions", ["v1beta1"])
        return registration.PluginInfo(
            type=self.knobs.get("type", "DevicePlugin"), name=self.resource, supported_versions=versions
        )

    def NotifyRegistrationStatus(self, request, context):
        self.told.append({"registered": request.plugin_registered, "error": request.error})
        return registration.RegistrationStatusResponse()

    def GetDevicePluginOptions(self, request, context):
        if "options_error" in self.knobs:
            context.abort(grpc.StatusCode.INTERNAL, self.knobs["options_error"])
        return v1beta1.DevicePluginOptions(
            pre_start_required="pre_start" in self.knobs, get_preferred_allocation_available="prefer" in self.knobs
        )

    def ListAndWatch(self, request, context):
        stream: queue.Queue[dict | None] = queue.Queue()
        if not self.knobs.get("silent"):
            stream.put(self.devices)
        self._streams.append(stream)
        context.add_callback(lambda: stream.put(None))
        while (devices := stream.get()) is not None:
            yield v1beta1.ListAndWatchResponse(devices=[device(name, told) for name, told in devices.items()])

    def GetPreferredAllocation(self, request, context):
        (asked,) = request.container_requests
        offered, must = sorted(asked.available_deviceIDs), sorted(asked.must_include_deviceIDs)
        self.calls.append(["prefer", offered, must, asked.allocation_size])
        wish = self.knobs["prefer"]
        if wish == "fail":
            context.abort(grpc.StatusCode.INTERNAL, "no idea")
        first = (must + [each for each in offered if each not in must])[: asked.allocation_size]
        chosen = v1beta1.ContainerPreferredAllocationResponse(deviceIDs=first if wish == "first" else wish)
        return v1beta1.PreferredAllocationResponse(container_responses=[chosen])

    def Allocate(self, request, context):
        (asked,) = request.container_requests
        ids = sorted(asked.devices_ids)
        self.calls.append(["allocate", ids])
        answer = self.knobs.get("allocate", "nodes")
        if answer == "busy":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "device busy")
        responses = [] if answer == "nothing" else [_nodes(ids, self.resource)]
        return v1beta1.AllocateResponse(container_responses=responses)

    def PreStartContainer(self, request, context):
        self.calls.append(["pre-start", sorted(request.devices_ids)])
        if self.knobs["pre_start"] == "fail":
            context.abort(grpc.StatusCode.INTERNAL, "not now")
        return v1beta1.PreStartContainerResponse()


def _nodes(ids: list[str], resource: str) -> v1beta1.ContainerAllocateResponse:
    """A node for each device, and one of everything else."""
    return v1beta1.ContainerAllocateResponse(
        envs={f"IDS_{resource[-1]}": ",".join(ids)},
        mounts=[v1beta1.Mount(host_path="/lib/x", container_path="/usr/lib/x", read_only=True)],
        devices=[
            v1beta1.DeviceSpec(host_path=f"/dev/{each}", container_path=f"/dev/{each}", permissions="rw")
            for each in ids
        ],
        annotations={f"{resource}-ids": ",".join(ids)},
        cdi_devices=[v1beta1.CDIDevice(name=f"{resource}={each}") for each in ids],
    )
