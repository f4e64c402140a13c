"""How a server generation comes to the kubelet. There are two ways: `register_call` and `plugins_registry`."""

from typing import Protocol

import grpc.aio


class RegistrationError(Exception):
    """The kubelet did not register the resource: its own words, or what happened to the call."""


class NotFoundError(RegistrationError):
    """The kubelet has not come to look: it may not run yet. Nobody has failed."""


class Registration(Protocol):
    """One generation's."""

    def serve(self, server: grpc.aio.Server) -> None:
        """Add what the kubelet asks for besides the device plugin."""

    async def done(self) -> None:
        """Until the kubelet has registered the resource. Raises RegistrationError."""
