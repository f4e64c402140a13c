"""Programs that listen to a simulated node, on datagram sockets with abstract names (rust/src/events/simulated.rs).

A name is `devherd-<what>-<device>-<inode>-<number>`, with device and inode of the node's root.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SEND_SECONDS = 0.1
"""For a listener to make room; one that does not loses the message, as with the kernel."""


def tell_listeners(root: Path, what: str, messages: Iterable[bytes]) -> None:
    """Send messages to everyone who listens to `what` of the node below `root`."""
    messages = list(messages)
    if not messages:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SEND_SECONDS)
        for listener in _listeners(root, what):
            with suppress(OSError):  # it has ended, or does not read
                for message in messages:
                    sender.sendto(message, listener)


def _listeners(root: Path, what: str) -> list[str]:
    status = root.stat()
    prefix = f"@devherd-{what}-{status.st_dev}-{status.st_ino}-"
    names = (line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text().splitlines())
    return ["\0" + name[1:] for name in names if name.startswith(prefix)]
