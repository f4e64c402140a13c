"""A vendor's monitor whole: what it says on its socket reaches the kubelet; where there is none, nobody asks."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import pytest_asyncio

from devherd.proto.amd_exporter_pb2 import GPUState, GPUStateResponse
from devherd_sim.node import faults

RESOURCE = "amd.com/gpu"
SOCKET = "var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
QUICK = {"health": {"poll": "100ms"}, "scan": {"period": "300ms"}}


@pytest_asyncio.fixture
async def exporter(testbed):
    """AMD's exporter, not yet started, and what it will answer."""
    socket = testbed.settings.host_root / SOCKET
    socket.parent.mkdir(parents=True)
    said = GPUStateResponse()
    handler = grpc.unary_unary_rpc_method_handler(lambda *_: said, bytes, GPUStateResponse.SerializeToString)
    server = grpc.server(ThreadPoolExecutor(1))
    service = grpc.method_handlers_generic_handler("metricssvc.MetricsService", {"List": handler})
    server.add_generic_rpc_handlers((service,))
    yield said, server, f"unix:{socket}"
    server.stop(0).wait()


@pytest.mark.on("amd-8", QUICK)
async def test_a_gpu_that_amds_exporter_calls_unhealthy_is_given_to_nobody(testbed, exporter):
    """And no other GPU is touched."""
    said, server, address = exporter
    await testbed.kubelet.until_allocatable(RESOURCE, 8, within=30)
    assert "source:amd-exporter" not in testbed.children()
    ill, *others = sorted(testbed.kubelet.devices(RESOURCE))
    said.GPUState.append(GPUState(Device=ill, Health="unhealthy"))
    said.GPUState.extend(GPUState(Device=other, Health="healthy") for other in others)

    server.add_insecure_port(address)
    server.start()
    await testbed.kubelet.until_allocatable(RESOURCE, 7, within=30)

    assert testbed.kubelet.devices(RESOURCE)[ill] == "Unhealthy"
    await testbed.child("source:amd-exporter")


@pytest.mark.on("amd-8", {**QUICK, "health": QUICK["health"] | {"amd_kfd": True}})
async def test_a_gpu_that_its_driver_resets_is_given_to_nobody_until_that_is_done(testbed):
    """As often as it happens; a GPU that is reset again and again is not held back for that."""
    await testbed.kubelet.until_allocatable(RESOURCE, 8, within=30)
    await testbed.child("source:amd-kfd")
    status = testbed.settings.findings_directory / "amd-kfd"
    await testbed.until(lambda: any(status.iterdir()), "the process listens")
    gpu = min(testbed.kubelet.devices(RESOURCE))
    for _ in range(4):
        faults.inject(testbed.node, "gpu-reset", gpu)
        await testbed.kubelet.until_allocatable(RESOURCE, 7, within=30)
        assert testbed.kubelet.devices(RESOURCE)[gpu] == "Unhealthy"
        faults.clear(testbed.node, "gpu-reset", gpu)
        await testbed.kubelet.until_allocatable(RESOURCE, 8, within=30)
