"""When a device list is due on a stream: at once when it differs and the stream has rested, never when it is the same.

Each list costs the kubelet a checkpoint and an fsync. Pure: the time is given.
"""

from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1

REST_SECONDS = 0.25
"""Between two lists on a stream. A device that fails and recovers within it is not worth a message."""


class Pacing:
    """What one stream has sent, and when."""

    def __init__(self) -> None:
        self._sent: v1beta1.ListAndWatchResponse | None = None
        self._rested_at = 0.0

    def seconds_until_due(self, latest: v1beta1.ListAndWatchResponse, now: float) -> float | None:
        """0.0: send it now. None: the other side has it."""
        if self._sent is None:
            return 0.0
        if latest is self._sent or latest == self._sent:
            return None
        return max(0.0, self._rested_at - now)

    def sent(self, device_list: v1beta1.ListAndWatchResponse, now: float) -> None:
        """Remember what went out."""
        self._sent = device_list
        self._rested_at = now + REST_SECONDS
