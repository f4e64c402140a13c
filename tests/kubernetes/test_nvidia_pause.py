"""A pause by NVIDIA's managers before a small API server that has a node to be watched."""

import time

import pytest

from devherd import spool
from devherd.proto.spool_pb2 import NvidiaPause

DEPLOY = "nvidia.com/gpu.deploy"
CLIENT, PLUGIN = f"{DEPLOY}.client", f"{DEPLOY}.device-plugin"
UPGRADE, MIG = "paused-for-driver-upgrade", "paused-for-mig-change"


@pytest.fixture(autouse=True)
def configured(client):
    client.configure(nvidia_pause=True)
    client.waits["pause_rewrite"] = 0.5


def deploy(client, /, **labels: str) -> None:
    """The node has these labels of the operator's, and no others."""
    client.server.relabel({f"{DEPLOY}.{key}": value for key, value in labels.items()})


def pause(client) -> NvidiaPause:
    return spool.read_or_empty(client.settings.nvidia_pause_file, NvidiaPause)


def until_paused(client, label: str = "", value: str = "") -> None:
    client.until(lambda: ((there := pause(client)).label, there.value) == (label, value), (label, value))


def test_a_pause_is_told_from_its_begin_to_its_end(client):
    """By either label, whatever stood there before; the node is read once, and watched from then on."""
    deploy(client, client="true", **{"device-plugin": "true"})
    client.start()
    client.until(lambda: client.server.watches, "it watches")
    assert not client.settings.nvidia_pause_file.exists()
    deploy(client, client=UPGRADE, **{"device-plugin": UPGRADE})
    until_paused(client, CLIENT, UPGRADE)
    deploy(client, client="true", **{"device-plugin": "true"})
    until_paused(client)
    deploy(client, **{"device-plugin": f"mine_{UPGRADE}"})
    until_paused(client, PLUGIN, f"mine_{UPGRADE}")
    deploy(client, client=MIG)
    until_paused(client, CLIENT, MIG)
    assert client.server.reads == 1


def test_a_pause_is_written_again_while_it_lasts_also_where_the_api_server_is_away(client):
    """Its reader drops an old one: then nobody writes any more. What is wrong is a problem with its cure."""
    deploy(client, client=MIG)
    client.start()
    until_paused(client, CLIENT, MIG)
    client.until(lambda: client.server.watches, "it watches")
    first = pause(client).monotonic_seconds
    client.server.refusal = 403, "nodes is forbidden"
    client.server.end_watches()
    cure = "cannot be watched for pauses of GPU clients: 403: nodes is forbidden: add the component"
    client.until(lambda: any(cure in why for _, why in client.problems("nvidia-pause")), "problem")
    refused = pause(client).monotonic_seconds
    client.until(lambda: pause(client).monotonic_seconds > refused, "it is written again")
    assert refused >= first
    client.server.refusal = None
    client.until(lambda: not client.problems("nvidia-pause"), "the problem is solved")
    deploy(client)
    until_paused(client)


def test_what_an_earlier_process_has_written_is_taken_back_once_the_node_has_been_read(client):
    """The pause has ended while nobody watched."""
    now = time.monotonic()
    spool.write(client.settings.nvidia_pause_file, NvidiaPause(label=CLIENT, value=MIG, monotonic_seconds=now))
    deploy(client, client="true")
    client.start()
    until_paused(client)
