"""An embedded kubelet whose Register can be made to refuse, dawdle or hang."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from devherd_sim.kubelet import manager
from devherd_sim.kubelet.manager import EmbeddedKubelet
from devherd_sim.kubelet.registration import RegistrationService


@dataclass
class Mood:
    """What Register does before it does what it should; to be changed at any time."""

    refusal: str = ""
    delay: float = 0.0
    hangs: bool = False


class MoodyRegistration(RegistrationService):
    def __init__(self, mood, *arguments):
        super().__init__(*arguments)
        self._mood = mood

    async def Register(self, request, context):
        if self._mood.hangs:
            self._events.record("register-called", request.resource_name, endpoint=request.endpoint)
            await asyncio.sleep(3600)
        if self._mood.refusal:
            self._events.record("register-called", request.resource_name, endpoint=request.endpoint)
            await self._refuse(request, context, self._mood.refusal)
        await asyncio.sleep(self._mood.delay)
        return await super().Register(request, context)


class MoodyKubelet(EmbeddedKubelet):
    def __init__(self, kubelet_dir):
        super().__init__(kubelet_dir)
        self.mood = Mood()

    def _serve_registration(self, server):
        with patch.object(manager, "RegistrationService", partial(MoodyRegistration, self.mood)):
            super()._serve_registration(server)

    async def let_go(self, resource):
        """End the stream of one resource, as a kubelet does that disconnects a plugin."""
        await self._node.endpoint(resource).close()

    def socket_of(self, resource):
        """The socket that a resource's plugin has registered."""
        return Path(self._node.endpoint(resource).socket)
