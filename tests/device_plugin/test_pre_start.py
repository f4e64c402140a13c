"""Process `pre-start`, which looks at a device before a container starts, where it cannot look."""

import json
import socket

from descriptors import descriptors

from devherd import spool
from devherd.pre_start.main import Server, Suspects
from devherd.process import Child, Heartbeats
from devherd.proto.spool_pb2 import Device, Offer, Offers, PreStart
from devherd.settings import Settings

NAME = "example.com/gpu"


def offer(settings, *reasons):
    """A device that is to be examined before each start."""
    device = Device(
        vendor="simulated", card="card", id="0", reasons=reasons, pre_start=PreStart(program=["/bin/false"])
    )
    spool.write(
        settings.offers_file,
        Offers(offers=[Offer(name=NAME, front_end=spool.DEVICE_PLUGIN_FRONT_END, devices=[device])]),
    )


def test_a_start_is_refused_while_no_descriptor_is_left_to_see_what_is_to_be_examined(tmp_path):
    """Defect: the device was taken for one that is not to be examined, and the container started."""
    settings = Settings(run_dir=tmp_path)
    offer(settings)
    server = Server(Child("pre-start", settings, Heartbeats(1), 0))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(json.dumps({"resource_name": NAME, "device_ids": ["0"]}).encode() + b"\n")
        with descriptors(0):
            server._take(ours, ours)
        answer = json.loads(theirs.recv(4096))
    assert answer["refusal"].startswith("process pre-start does not see the devices: [Errno 24] Too many open files")


def test_a_finding_that_no_descriptor_was_left_to_read_makes_a_suspect_once_there_is_one(tmp_path):
    """Defect: the device was well for a program that runs for suspects only."""
    settings = Settings(run_dir=tmp_path)
    suspects = Suspects(settings.offers_file, tmp_path / "suspects.json")
    offer(settings, "xid")
    with descriptors(0):
        suspects.look()
        assert not suspects.keys
    suspects.look()
    assert [*suspects.keys] == [("simulated", "card", "0")]
