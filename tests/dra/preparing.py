"""A node on which claims are prepared: its pools, its API server, its kubelet, and processes that prepare."""

import asyncio
import http
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import grpc.aio
import pytest
from small_api import SmallApi

from devherd import cdi
from devherd.dra.claim import ClaimError, ClaimOfPod
from devherd.dra.pools import Pools, Unpublished
from devherd.dra.preparation import Limits, Preparation, PreparedAnswer
from devherd.dra.records import ClaimRecords
from devherd.proto.podresources_v1_pb2 import ListPodResourcesResponse
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerServicer, add_PodResourcesListerServicer_to_server
from devherd.proto.spool_pb2 import Edits
from devherd.settings import Settings

NODE, DRIVER = "node-1", "gpu.amd.com"
PATIENT = Limits(call=60.0, pause=0.005, longest_pause=0.02, unseen=0.05, api_call=0.5, lock=0.2)
"""What heals is found to have healed."""
HURRIED = Limits(call=1.0, pause=0.005, longest_pause=0.02, unseen=60.0, lock=0.05)
"""What does not heal is given up."""


def uid(number):
    return f"00000000-0000-4000-8000-{number:012}"


def claim(number, name=""):
    """As the kubelet names it."""
    return ClaimOfPod("default", name or f"claim-{number}", uid(number))


def result(device, request="gpu", **more):
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device, **more}


class ClaimsApi(SmallApi):
    """An API server with claims; `refusals` are its next answers, each a status, or None for silence."""

    def __init__(self, directory):
        self.claims = {}
        self.refusals = []
        self.token = None
        self.goes_on = threading.Event()
        super().__init__(directory)

    def close(self):
        self.goes_on.set()
        super().close()

    def allocate(self, asked, *results, pods=("pod",), configs=()):
        """As the scheduler does, for pods of its namespace."""
        devices = {"results": list(results), "config": list(configs)}
        self.claims[asked.namespace, asked.name] = {
            "metadata": {"uid": asked.uid},
            "status": {
                "allocation": {"devices": devices},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
            },
        }

    def remove(self, asked):
        del self.claims[asked.namespace, asked.name]

    def answer(self, method, path, body):
        if self.refusals:
            status = self.refusals.pop(0)
            if status is None:
                self.goes_on.wait(60)
                status = 500
            return status, {"message": http.HTTPStatus(status).phrase}
        if self.token not in (None, self.tokens[-1]):
            return 401, {"message": "Unauthorized"}
        *_, namespace, _, name = path.split("/")
        found = self.claims.get((namespace, name))
        return (200, found) if found else (404, {"message": f'resourceclaims "{name}" not found'})


class SmallPools:
    """What the scanner has written: devices by driver and name."""

    def __init__(self, cdi_directory):
        self._cdi_directory = cdi_directory
        self.pools = Pools()
        self.edits = {}
        self.looks = []
        """What happens at the next looks."""

    def look(self):
        if self.looks:
            self.looks.pop(0)()
        return False

    def device(self, driver, name):
        found = self.pools.devices.get(driver, ()) if self.pools else ()
        return next((one for one in found if one.name == name), None)

    def add(self, *names, driver=DRIVER, **edits):
        """Publish devices whose static specs are there."""
        for name in names:
            key = ("amd", name, name)
            subject = SimpleNamespace(entry=SimpleNamespace(gone_since=None))
            self.pools.devices.setdefault(driver, []).append(SimpleNamespace(name=name, key=key, subject=subject))
            self.edits[key] = Edits(cdi_devices=[f"amd.com/gpu={name}"], **edits)
        self.write_specs()

    def withhold(self, name, why, *, is_awaited=False, is_named=True):
        """As of a device that cannot be published."""
        key = ("amd", name, name)
        self.pools.devices.setdefault(DRIVER, [])
        self.pools.devices[DRIVER] = [one for one in self.pools.devices[DRIVER] if one.name != name]
        self.pools.withheld[key] = why
        self.pools.unpublished[key] = Unpublished(DRIVER, name if is_named else None, is_awaited)

    def write_specs(self):
        """As the scanner writes them before it publishes the devices."""
        self._cdi_directory.mkdir(parents=True, exist_ok=True)
        edits = {f"amd.com/gpu={key[2]}": {"deviceNodes": [{"path": "/dev/null"}]} for key in self.edits}
        (self._cdi_directory / cdi.file_name("amd.com/gpu")).write_text(cdi.spec_text(edits, edits.keys()) or "")


class SmallKubelet(PodResourcesListerServicer):
    """PodResources: `shows(pod, claim, device, …)`."""

    def __init__(self, settings):
        self._socket = settings.pod_resources_socket
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = None
        self.answer = ListPodResourcesResponse()
        self.asked = 0

    def shows(self, pod, asked, *devices):
        container = self.answer.pod_resources.add(name=pod, namespace=asked.namespace).containers.add(name="main")
        dynamic = container.dynamic_resources.add(claim_name=asked.name, claim_namespace=asked.namespace)
        for device in devices:
            dynamic.claim_resources.add(driver_name=DRIVER, pool_name=NODE, device_name=device)

    async def List(self, request, context):
        self.asked += 1
        return self.answer

    async def start(self):
        """Serve, as after a restart on a new socket."""
        await self.stop()
        self._server = grpc.aio.server()
        add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def stop(self):
        if self._server:
            await self._server.stop(None)
        self._socket.unlink(missing_ok=True)


class PreparingNode:
    """All of it; `process()` is one that prepares."""

    def __init__(self, directory, api):
        self._short = tempfile.TemporaryDirectory()  # the path of a socket has 107 characters at most
        kubelet = Path(self._short.name)
        self.settings = Settings(run_dir=directory / "run", state_dir=directory / "state", kubelet_dir=kubelet)
        self.api = api
        self.access = api.access
        self.cdi_directory = directory / "cdi"
        self.pools = SmallPools(self.cdi_directory)
        self.kubelet = SmallKubelet(self.settings)
        self._processes = []

    def process(self, limits=PATIENT):
        config = SimpleNamespace(cdi_directory=self.cdi_directory, api_access=lambda: self.access)
        self._processes.append(Preparation(self.settings, config, NODE, self.pools, limits))
        return self._processes[-1]

    def records(self):
        """The claims that are noted, by uid."""
        return {uid: claim for (_, uid), claim in ClaimRecords(self.settings.prepared_claims_file).read().items()}

    def claim_specs(self):
        return sorted(path.name for path in self.cdi_directory.glob("devherd-claim-*"))

    async def close(self):
        for process in self._processes:
            process.close()
        await self.kubelet.stop()
        self._short.cleanup()


async def refusal(process, asked, driver=DRIVER):
    with pytest.raises(ClaimError) as caught:
        await process.prepare(driver, asked)
    return str(caught.value)


async def waiting(process, asked):
    """A Prepare that has begun, and does not end by itself."""
    task = asyncio.create_task(process.prepare(DRIVER, asked))
    await asyncio.sleep(0.1)
    assert not task.done()
    return task


def answer(device, *more_ids, request="gpu", share=""):
    return PreparedAnswer((request,), NODE, device, (f"amd.com/gpu={device}", *more_ids), share)
