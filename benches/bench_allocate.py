"""Allocate as a client in another process sees it, against a bare grpcio server whose answer is a constant.

Both answer for one device with one node. The calls take turns, so that whatever else the machine does hits both.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import bare_plugin
import grpc
from herds import small_testbed
from measure import figure, headline, milliseconds, percentile, use_byte_code

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from devherd_sim.testbed import Testbed

CALLS = 4000
WARM_UP = 200


async def main() -> None:
    """Print the figures."""
    headline("Allocate of one device")
    use_byte_code()
    async with small_testbed("fpga-1", {}) as herd:
        with bare_plugin.started(herd.settings.kubelet_dir, "example.com/bare"):
            await herd.kubelet.events.wait("list", "example.com/bare")
            await herd.start_herd()
            await herd.kubelet.events.wait("list", since=herd.kubelet.events.mark())
            await asyncio.sleep(1)
            ours, floor = await asyncio.to_thread(_take_turns, _socket(herd), _bare_socket(herd))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, bare = percentile(ours, share), percentile(floor, share)
        figure(
            f"{name} of {CALLS}",
            milliseconds(mine),
            "<= 1.2x",
            f"{mine / bare:.2f}x a bare server's {milliseconds(bare)}",
        )


def _socket(herd: Testbed) -> Path:
    return next(herd.settings.plugin_directory.glob("devherd-*.sock"))


def _bare_socket(herd: Testbed) -> Path:
    return bare_plugin.socket_of(herd.settings.kubelet_dir, "example.com/bare")


def _take_turns(ours: Path, bare: Path) -> tuple[list[float], list[float]]:
    """The time of each call of both servers."""
    with grpc.insecure_channel(f"unix:{ours}") as our_channel, grpc.insecure_channel(f"unix:{bare}") as bare_channel:
        allocate = [DevicePluginStub(channel).Allocate for channel in (our_channel, bare_channel)]
        rounds = [[_time(call) for call in allocate] for _ in range(WARM_UP + CALLS)][WARM_UP:]
        return [mine for mine, _ in rounds], [bare for _, bare in rounds]


def _time(allocate: Callable[[api.AllocateRequest], api.AllocateResponse]) -> float:
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[bare_plugin.DEVICE])])
    began = time.perf_counter()
    answer = allocate(request)
    took = time.perf_counter() - began
    assert answer.container_responses[0].devices[0].host_path == f"/dev/{bare_plugin.DEVICE}"
    return took


if __name__ == "__main__":
    asyncio.run(main())
