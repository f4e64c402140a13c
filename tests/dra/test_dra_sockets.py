"""Where the sockets of DRA drivers are, and servers that come in the place of others there."""

import os
from pathlib import Path

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from devherd.dra.sockets import SocketServer, fits, registration_socket, service_socket
from devherd.errors import UsageError
from devherd.settings import Settings

DRIVERS = st.from_regex(r"[a-z]{1,20}(\.[a-z]{1,10}){1,4}", fullmatch=True).filter(lambda name: len(name) <= 63)
LONGEST = f"{'a' * 51}.example.com"


def paths(root, driver):
    """All that a driver has."""
    settings = Settings(kubelet_dir=Path(root))
    return [place(settings, driver, letter) for place in (registration_socket, service_socket) for letter in "ab"]


def test_names_are_those_that_admins_know_where_they_fit():
    """Driver, process, and what is before and behind."""
    assert [str(path) for path in paths("/var/lib/kubelet", "gpu.example.com")] == [
        "/var/lib/kubelet/plugins_registry/gpu.example.com-a-reg.sock",
        "/var/lib/kubelet/plugins_registry/gpu.example.com-b-reg.sock",
        "/var/lib/kubelet/plugins/gpu.example.com/dra-a.sock",
        "/var/lib/kubelet/plugins/gpu.example.com/dra-b.sock",
    ]


@given(st.lists(DRIVERS, min_size=1, max_size=5, unique=True), st.integers(2, 62))
@example([LONGEST], len("/var/lib/kubelet"))
@example([LONGEST], len("/var/snap/microk8s/common/var/lib/kubelet"))
def test_every_driver_has_sockets_of_its_own_below_a_directory_of_usual_length(drivers, length):
    """A hash stands for a name that is too long; each process of each driver has another path."""
    root = "/" + "d" * (length - 1)
    made = [path for driver in drivers for path in paths(root, driver)]
    assert len(set(made)) == len(made)
    assert all(map(fits, made))
    assert {path.relative_to(root).parts[0] for path in made} == {"plugins_registry", "plugins"}


async def test_a_path_too_long_is_refused_with_the_cure():
    """As of a kubelet in somebody's deep directory."""
    path = paths("/" + "d" * 90, "gpu.example.com")[0]
    with pytest.raises(UsageError) as refused:
        await SocketServer(path, lambda _: None).open()
    bytes_of_path = len(os.fsencode(path))
    assert str(refused.value) == (
        f"{path.parent}: cannot hold the driver's socket — its path would have {bytes_of_path} bytes and the kernel's"
        " limit is 107 — choose a shorter --kubelet-root-dir"
    )


def answering(text):
    """Services whose only call answers this."""

    async def answer(_request, _context):
        return text.encode()

    handler = grpc.method_handlers_generic_handler("Who", {"Serves": grpc.unary_unary_rpc_method_handler(answer)})
    return lambda server: server.add_generic_rpc_handlers([handler])


async def who_serves(channel):
    """The answer."""
    return (await channel.unary_unary("/Who/Serves")(b"", timeout=10)).decode()


async def test_a_server_comes_in_the_place_of_another_whose_end_leaves_it_alone(directory):
    """Those who are connected to the first stay so until its end; gRPC removes the path of a server that ends."""
    path = directory / "dra-a.sock"
    first, second = (SocketServer(path, answering(text)) for text in ("first", "second"))
    await first.open()
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as early,
        grpc.aio.insecure_channel(f"unix:{path}", options=options) as late,
    ):
        assert await who_serves(early) == "first"
        await second.open()
        assert (first.is_there(), second.is_there()) == (False, True)
        assert (await who_serves(early), await who_serves(late)) == ("first", "second")
        await first.close(0)
        assert second.is_there()
        assert await who_serves(late) == "second"
    await second.close(0)
    assert list(directory.iterdir()) == []


async def test_what_is_in_the_way_is_replaced_or_said(directory):
    """A file goes; a directory does not, and nothing is left beside it."""
    path = directory / "dra-a.sock"
    path.write_text("of somebody else")
    server = SocketServer(path, answering(""))
    await server.open()
    assert server.is_there()
    await server.close(0)
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=f"{path} is a directory"):
        await SocketServer(path, answering("")).open()
    assert list(directory.iterdir()) == [path]


async def test_a_directory_that_is_missing_is_said(directory):
    """It is the kubelet's, and nobody else makes it."""
    with pytest.raises(FileNotFoundError, match=r"plugins_registry is no directory, or does not exist"):
        await SocketServer(directory / "plugins_registry/x.sock", answering("")).open()
