"""A DRA driver of no manners: for what the kubelet does, and what devherd never does."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devherd.proto import dra_health_v1_pb2 as health_v1
from devherd.proto import dra_health_v1_pb2_grpc as health_v1_grpc
from devherd.proto import dra_v1_pb2 as v1
from devherd.proto import dra_v1_pb2_grpc as v1_grpc
from devherd.proto import pluginregistration_v1_pb2 as registration
from devherd.proto import pluginregistration_v1_pb2_grpc as registration_grpc

SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth")


class RawDriver(
    v1_grpc.DRAPluginServicer, health_v1_grpc.DRAResourceHealthServicer, registration_grpc.RegistrationServicer
):
    """Registers itself by a socket in plugins_registry, and serves on it, too."""

    def __init__(self, directory: Path, name: str, *, services=SERVICES, socket: str = "") -> None:
        self.prepared: list[str] = []
        """The claims that it was asked to prepare, by uid, in turn."""
        self.unprepared: list[str] = []
        self.error = ""
        """What it answers for each claim, instead of devices."""
        self.devices: dict[str, list[v1.Device]] = {}
        """What it answers, by the uid of the claim."""
        self.told: list[tuple[bool, str]] = []
        """What NotifyRegistrationStatus brought."""
        self._changed, self._health, self._is_over = threading.Condition(), None, False
        registry = directory / "plugins_registry"
        registry.mkdir(exist_ok=True)
        self.socket = registry / (socket or f"{name}-reg.sock")
        self._info = registration.PluginInfo(
            type="DRAPlugin", name=name, endpoint=str(self.socket), supported_versions=services
        )
        self._server = grpc.server(ThreadPoolExecutor(16))
        v1_grpc.add_DRAPluginServicer_to_server(self, self._server)
        health_v1_grpc.add_DRAResourceHealthServicer_to_server(self, self._server)
        registration_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def send(self, *devices: health_v1.DeviceHealth) -> None:
        """The health of all devices."""
        with self._changed:
            self._health = list(devices)
            self._changed.notify_all()

    def stop(self) -> None:
        """End streams and server."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._server.stop(None).wait()

    def GetInfo(self, _request, _context):
        return self._info

    def NotifyRegistrationStatus(self, request, _context):
        self.told.append((request.plugin_registered, request.error))
        return registration.RegistrationStatusResponse()

    def NodePrepareResources(self, request, _context):
        answer = v1.NodePrepareResourcesResponse()
        for claim in request.claims:
            self.prepared.append(claim.uid)
            answer.claims[claim.uid].error = self.error
            answer.claims[claim.uid].devices.extend(self.devices.get(claim.uid, ()))
        return answer

    def NodeUnprepareResources(self, request, _context):
        answer = v1.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.unprepared.append(claim.uid)
            answer.claims[claim.uid].error = self.error
        return answer

    def NodeWatchResources(self, _request, _context) -> Iterator[health_v1.NodeWatchResourcesResponse]:
        told = None
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._health is not told, 60)  # noqa: B023 - now
                told = self._health
            if told is not None:
                yield health_v1.NodeWatchResourcesResponse(devices=told)
