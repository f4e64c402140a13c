"""Telling the service manager that devherd is ready, for a unit of `Type=notify` (sd_notify(3))."""

import logging
import os
import socket

log = logging.getLogger(__name__)

_READY = b"READY=1"


def tell_ready() -> None:
    """Say once that the resource children of the first scan are there; to nobody when nobody wants to know."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # in the abstract namespace
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.sendto(_READY, address)
        except OSError as error:
            log.warning("cannot tell the service manager that devherd is ready: %s", error)
