"""Calling a vendor's monitor on its socket of this host."""

import contextlib
from pathlib import Path

import grpc

from devherd.health.sources.trusted import distrusted
from devherd.kubelet.endpoint import target

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the last attempt
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 30_000),
)


def channel_to(socket: str) -> grpc.Channel:
    """Connects when it is used, and again when the monitor is."""
    return grpc.insecure_channel(target(Path(socket)), options=_OPTIONS)


def check(socket: str) -> None:
    """Raises RpcError where somebody else may have put his socket in the place of the monitor's."""
    with contextlib.suppress(OSError):  # the call says that there is none
        complaint = distrusted(Path(socket))
        if complaint:
            raise grpc.RpcError(complaint)


def why(error: grpc.RpcError) -> str:
    """Why a call failed, for people."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
