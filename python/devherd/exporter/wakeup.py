"""Signals as events of the exporter's one loop: the interpreter writes their numbers on a socket the loop reads."""

import signal
import socket
from collections.abc import Callable, Mapping

from waitress import wasyncore

Handlers = Mapping[signal.Signals, Callable[[], None]]


class Wakeup(wasyncore.dispatcher):
    """Calls the handler of each signal from the loop, never from within the signal."""

    def __init__(self, handlers: Handlers, sockets: dict[int, socket.socket]) -> None:
        reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        super().__init__(reader, map=sockets)
        self._handlers = handlers
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in handlers:
            signal.signal(number, lambda *_: None)  # without a handler of Python's no number is written

    def writable(self) -> bool:
        """Nothing is ever written to the loop's end."""
        return False

    def handle_read(self) -> None:
        """Handle what has come since the last time, each signal once."""
        for number in dict.fromkeys(self.recv(4096)):
            self._handlers[signal.Signals(number)]()
