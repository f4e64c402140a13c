"""The exporter's port is open to the whole cluster: what pods do to it must not reach the probes, nor the kubelet."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
PORT = "intel-fpga-port.0"
MANY = {"simulated": [{"name": "example.com/gpu", "count": 10_000}], "health": {"poll": "100ms", "recover_after": 6}}

SILENT, SLOW = 1000, 100
ANSWERED_WITHIN_SECONDS = 2.0
"""A probe's default is 1 s; the median is asserted, so a busy machine does not matter."""


@asynccontextmanager
async def connection(testbed, client):
    """One of a client's connections, which may be ended by the other side."""
    host, _, port = testbed.settings.listen.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), local_addr=(client, 0), limit=1 << 10)
    try:
        yield writer
    finally:
        writer.transport.abort()


async def probe(testbed, path):
    """Status and seconds of one request on a connection of its own."""
    began = time.monotonic()
    host, _, port = testbed.settings.listen.rpartition(":")
    reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return int(answer.split()[1]), time.monotonic() - began


@pytest.mark.on("fpga-opae-2", MANY)
async def test_clients_that_hold_a_thousand_connections_and_read_slowly_keep_no_probe_waiting(testbed):
    """Twenty pods open connections and say nothing, two ask for pages of 3 MB and do not read them."""
    await testbed.kubelet.until_allocatable("example.com/gpu", 10_000, within=60)
    await testbed.kubelet.until_allocatable(CRYPTO, 1, within=30)
    await testbed.until(lambda: testbed.runs("exporter"), "the exporter runs")
    async with AsyncExitStack() as stack:
        for number in range(SILENT):
            silent = await stack.enter_async_context(connection(testbed, f"127.0.1.{number // 50 + 1}"))
            silent.write(b"GET /healthz HTTP/1.1\r\nHos")
        for number in range(SLOW):
            slow = await stack.enter_async_context(connection(testbed, f"127.0.2.{number // 50 + 1}"))
            slow.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

        answers = [await probe(testbed, path) for _ in range(20) for path in ("/healthz", "/readyz")]
        faults.inject(testbed.node, "fpga-errors", PORT)
        await testbed.kubelet.until_allocatable(CRYPTO, 0, within=30)
        answers += [await probe(testbed, path) for _ in range(20) for path in ("/healthz", "/readyz")]

    assert {status for status, _ in answers} == {200}
    took = sorted(seconds for _, seconds in answers)
    print(f"probes: median {took[len(took) // 2] * 1000:.1f} ms, longest {took[-1] * 1000:.1f} ms")
    assert took[len(took) // 2] < ANSWERED_WITHIN_SECONDS
