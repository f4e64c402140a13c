"""What happens within NodePrepareResources and NodeUnprepareResources.

The kubelet tries a failed Prepare again after 60 to 90 seconds, so whatever may heal is waited for within the call. The
event loop waits; calls of the API server and work on files are done by threads, and claims do not wait for each other.

A device of one claim is given to no other until Unprepare, unless both have shares of it or one is for administrators.
A record may be left over, of a claim that the API server does not have any more, or that has other devices now. It ends
by a boot, as no container is older, or as `left_over` says.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from devherd.api_server import CALL_SECONDS, Json
from devherd.config.resolved import ResolvedConfig
from devherd.dra.claim import (
    Allocated,
    ClaimAllocation,
    ClaimError,
    ClaimOfPod,
    ForbiddenError,
    NotYetError,
    allocation_of,
    has,
    is_uid,
    pods_of,
)
from devherd.dra.claim_reader import ClaimReader
from devherd.dra.claim_specs import NO_REQUEST, ClaimSpecs, claim_spec
from devherd.dra.left_over import UNSEEN_SECONDS, LeftOver
from devherd.dra.records import LOCK_SECONDS, ClaimRecords, Claims, Key, RecordsError
from devherd.history import BOOT, booted
from devherd.log import Once
from devherd.proto.spool_pb2 import Edits, PreparedClaim, PreparedDevice
from devherd.settings import Settings

if TYPE_CHECKING:
    from devherd.dra.pool_files import PoolFiles
    from devherd.dra.pools import Published

log = logging.getLogger(__name__)

_Done = TypeVar("_Done")
_LONGEST_LIST = 8
_RESTORE_LOCK_SECONDS = 0.2
"""The event loop waits meanwhile, and the kubelet gives a driver one second to say who it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds."""

    call: float = 40.0
    """Of a Prepare or Unprepare: the kubelet waits for 45 (pkg/kubelet/cm/dra/plugin/dra_plugin.go)."""
    api_call: float = CALL_SECONDS
    files: float = 10.0
    """Of work on files, the lock included."""
    lock: float = LOCK_SECONDS
    pause: float = 0.1
    """Between two looks at what is read or written on this node, and before the first repetition of a failed call."""
    longest_pause: float = 1.0
    """Between two questions to the kubelet or to the API server, unless that asks for more."""
    refused: float = 5.0
    """Of an API server that refuses to show the claim: by the Node authorizer, a kubelet's credential may read it once
    that server has learnt that the pod is on this node."""
    unseen: float = UNSEEN_SECONDS
    """Of a claim that is gone, before it counts as one that the kubelet does not know."""


@dataclass(frozen=True, slots=True)
class PreparedAnswer:
    """A device of a claim, as the kubelet is answered."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]
    share_id: str = ""


class _HeldError(Exception):
    """Records stand against a claim."""

    def __init__(self, records: Sequence[PreparedClaim]) -> None:
        super().__init__()
        self.records = records


class Preparation:
    """Prepares claims of this node, for all drivers. One a process; its methods are called by the process's loop.

    It looks at `pools` itself: whoever shares them must not rely on what `look` returns.
    """

    def __init__(
        self, settings: Settings, config: ResolvedConfig, node: str, pools: "PoolFiles", limits: Limits | None = None
    ) -> None:
        self._node = node
        self._pools = pools
        self._limits = limits or Limits()
        self._records = ClaimRecords(settings.prepared_claims_file, lock_seconds=self._limits.lock)
        self._specs = ClaimSpecs(config.cdi_directory)
        self._claims = ClaimReader(config, self._limits.api_call)
        self._left_over = LeftOver(settings.pod_resources_socket, self._limits.unseen)
        self._files = ThreadPoolExecutor(1, "files")
        self._freed = asyncio.Event()
        """Set, and replaced, when a claim is unprepared here."""
        self._complaint = Once(log.warning)

    def close(self) -> None:
        """Close the connections to the API server, and end the threads once they have done what they do."""
        self._claims.close()
        self._files.shutdown(wait=False, cancel_futures=True)

    def drivers(self) -> set[str]:
        """The drivers with prepared claims; none while the records cannot be read."""
        try:
            return {driver for driver, _ in self._records.read()}
        except RecordsError as error:
            self._complaint.complain("%s", error)
            return set()

    def restore(self) -> None:
        """Write the claim specs that are missing, as after a boot, and remove those of earlier boots' claims.

        May be called again at any time. What fails is logged, and tried again when the claim is prepared.
        """

        def write(claims: Claims) -> None:
            for key, claim in claims.items():
                self._specs.put(key, _spec_in(claim))
            self._specs.remove_outlived(claims.keys(), booted())

        try:
            self._records.change(write, _RESTORE_LOCK_SECONDS)
        except RecordsError as error:
            self._complaint.complain("the CDI specs of prepared claims are not looked after: %s", error)
        except OSError as error:
            self._complaint.complain("cannot write the CDI specs of prepared claims: %s", error)
        else:
            self._complaint.over()

    async def prepare(self, driver: str, claim: ClaimOfPod) -> list[PreparedAnswer]:
        """What the kubelet is answered for a claim, within `Limits.call`. Raises ClaimError, in words for users."""
        attempt = _Attempt(driver, claim)
        try:
            async with asyncio.timeout(self._limits.call):
                return await self._prepared(attempt)
        except TimeoutError:
            waited = f"{attempt.why} (waited {self._limits.call:g} s)"
            raise ClaimError(f"{claim} cannot be prepared", waited, "the kubelet tries again by itself") from None

    async def unprepare(self, driver: str, uid: str) -> None:
        """Forget a claim, whose containers have ended; an unknown one is no error. Raises ClaimError."""
        try:
            await self._in_files(self._forget, (driver, uid))
        except (RecordsError, NotYetError) as error:
            raise ClaimError(f"claim {uid} cannot be unprepared", str(error)) from None
        self._freed.set()
        self._freed = asyncio.Event()

    async def _prepared(self, attempt: "_Attempt") -> list[PreparedAnswer]:
        while True:
            freed = self._freed
            try:
                return await self._try(attempt)
            except NotYetError as error:
                attempt.why = str(error)
                await _either(freed, error.seconds)

    async def _try(self, attempt: "_Attempt") -> list[PreparedAnswer]:
        """The answer. Raises NotYetError, ClaimError."""
        if attempt.age() > 2 * self._limits.longest_pause:  # the claim may change while this waits
            attempt.use(allocation_of(await self._asked_for(attempt), attempt.claim, attempt.driver, self._node))
        while attempt.allocation.devices:
            try:
                return [_answer(device) for device in (await self._noted(attempt)).devices]
            except _HeldError as held:
                for record in held.records:
                    await self._check_left_over(attempt, record)
                    attempt.free[record.driver, record.uid] = record
            except RecordsError as error:
                raise self._failure(attempt, error) from None
            except OSError as error:
                what = f"its CDI spec in {self._specs.directory} cannot be written"
                raise self._failure(attempt, RecordsError.of(what, self._specs.directory, error)) from None
        return []

    async def _noted(self, attempt: "_Attempt") -> PreparedClaim:
        """The record of the claim, an earlier one of the same devices if its specs are there.

        Raises NotYetError, ClaimError, RecordsError, OSError of the CDI directory, and _HeldError.
        """
        known = await self._in_files(self._recorded, attempt.key, attempt.allocation)
        if known is not None:
            return known
        made = self._made(attempt)
        await self._in_files(self._record, made, attempt.allocation, attempt.free)
        return made

    def _failure(self, attempt: "_Attempt", error: RecordsError) -> Exception:
        if error.may_heal:
            return NotYetError(str(error), self._limits.longest_pause)
        return ClaimError(f"{attempt.claim} cannot be prepared", str(error))

    async def _asked_for(self, attempt: "_Attempt") -> Json:
        """The claim as the API server has it. Raises NotYetError, ClaimError."""
        found = await self._got(attempt, attempt.claim)
        if found is None:
            raise ClaimError(f"{attempt.claim} is gone", "the API server has none of this name", "delete the pod")
        return found

    async def _got(self, attempt: "_Attempt", claim: ClaimOfPod) -> Json | None:
        pause = min(self._limits.pause * 2**attempt.failures, self._limits.longest_pause)
        attempt.failures += 1
        try:
            found = await self._claims.get(claim, pause, is_of_a_pod_here=claim == attempt.claim)
        except ForbiddenError as error:
            if time.monotonic() - attempt.began > self._limits.refused:
                raise
            raise NotYetError(str(error).removeprefix("devherd: "), pause) from None
        attempt.failures = 0
        return found

    async def _in_files(self, work: Callable[..., _Done], *arguments: object) -> _Done:
        """Do it in the thread for files. Raises what it raises, and NotYetError if it does not come back."""
        pause = self._limits.longest_pause
        try:
            async with asyncio.timeout(self._limits.files):
                return await asyncio.get_running_loop().run_in_executor(self._files, work, *arguments)
        except TimeoutError:
            raise NotYetError("work on the files of claims does not come back", pause) from None
        except RuntimeError as error:  # Python's for a thread that cannot be started
            raise NotYetError(f"there is no thread for files: {error}", pause) from None

    def _recorded(self, key: Key, allocation: ClaimAllocation) -> PreparedClaim | None:
        """What was answered before for the same devices; None if nothing was, or if a static spec of it is missing.

        Its own spec is written under the lock: the twin may write the same one. Raises RecordsError, OSError.
        """
        known = self._records.read().get(key)
        if known is None or _devices_of(known) != list(allocation.devices):
            return None
        own = f"k8s.{key[0]}/claim="
        for device in known.devices:
            published = self._pools.device(key[0], device.device)
            edits = published and self._pools.edits.get(published.key)
            offered = edits.cdi_devices if edits else ()
            for name in device.cdi_device_ids:
                if not name.startswith(own) and not self._specs.has_static(name, is_published=name in offered):
                    return None

        def renew(claims: Claims) -> PreparedClaim | None:
            if claims.get(key) != known:  # it was unprepared meanwhile
                return None
            self._specs.put(key, _spec_in(known))
            if known.boot_id != BOOT:
                claims[key] = PreparedClaim()
                claims[key].CopyFrom(known)
                claims[key].boot_id = BOOT
            return claims[key]

        return self._records.change(renew)

    def _made(self, attempt: "_Attempt") -> PreparedClaim:
        """What is to be recorded, from the devices as they are. Raises NotYetError, ClaimError."""
        try:
            self._pools.look()
        except OSError as error:
            raise NotYetError(f"the devices of this node cannot be read: {error}", self._limits.pause) from None
        driver, claim = attempt.driver, attempt.claim
        devices = [(device, self._edits_of(attempt, device.device)) for device in attempt.allocation.devices]
        spec = claim_spec(driver, claim.uid, devices)
        made = PreparedClaim(driver=driver, uid=claim.uid, namespace=claim.namespace, name=claim.name, boot_id=BOOT)
        made.prepared_timestamp_seconds = time.time()
        names = dict(spec.names) if spec else {}
        for device, edits in reversed(devices):  # the last device of a request has the name in the claim's spec
            own = [names.pop(device.request)] if device.request in names else []
            made.devices.add(
                pool=device.pool,
                device=device.device,
                share_id=device.share_id,
                admin_access=device.admin_access,
                requests=[device.request],
                cdi_device_ids=[*edits.cdi_devices, *own],
            )
        made.devices.reverse()
        if NO_REQUEST in names:  # behind the others, because a runtime keeps the last value of a variable
            last = made.devices[-1]
            made.devices.append(last)
            last = made.devices[-1]
            last.requests[:], last.cdi_device_ids[:] = [NO_REQUEST], [names[NO_REQUEST]]
        made.devices[0].claim_edits = spec.text if spec else ""
        return made

    def _edits_of(self, attempt: "_Attempt", name: str) -> Edits:
        """What a container gets for a device. Raises NotYetError, ClaimError."""
        published = self._pools.device(attempt.driver, name)
        if published is None:
            raise self._unknown(attempt, name)
        if published.subject.entry.gone_since is not None:  # published for the claim that holds it
            raise _not_here(attempt, name, "it is gone")
        edits = self._pools.edits.get(published.key)
        if edits is None:
            raise NotYetError(f"{name} of {attempt.driver} is not offered yet", self._limits.pause)
        for cdi_name in edits.cdi_devices:
            if not self._specs.has_static(cdi_name, is_published=True):
                raise NotYetError(f"the CDI spec of {cdi_name} is not written yet", self._limits.pause)
        return edits

    def _unknown(self, attempt: "_Attempt", name: str) -> Exception:
        """What becomes of a device that is not published."""
        pools, driver = self._pools.pools, attempt.driver
        if pools is None:
            return NotYetError("the devices of this node are not read yet", self._limits.pause)
        hidden = {key: one for key, one in pools.unpublished.items() if one.driver == driver}
        named = [key for key, one in hidden.items() if one.name == name]
        perhaps = named or [key for key, one in hidden.items() if one.name is None]
        if awaited := [key for key in perhaps if hidden[key].is_awaited]:
            return NotYetError(f"{name} of {driver} is being read: {pools.withheld[awaited[0]]}", self._limits.pause)
        return _not_here(attempt, name, pools.withheld[named[0]] if named else _known(pools.devices.get(driver, ())))

    def _record(self, made: PreparedClaim, allocation: ClaimAllocation, free: Mapping[Key, PreparedClaim]) -> None:
        """Note a claim. Records that stand against it are dropped if they are still as in `free`.

        Raises _HeldError, RecordsError and OSError, and then nothing is noted.
        """
        key = made.driver, made.uid

        def note(claims: Claims) -> list[PreparedClaim]:
            standing = {other: one for other, one in claims.items() if _stands_against(one, made, allocation)}
            if held := [record for other, record in standing.items() if free.get(other) != record]:
                raise _HeldError(held)
            for other in standing:
                del claims[other]
                self._specs.remove(other)
            self._specs.put(key, _spec_in(made))
            claims[key] = made
            return list(standing.values())

        for record in self._records.change(note):
            self._left_over.forget((record.driver, record.uid))
            log.warning("%s of %s is left over: its devices are given to %s", _named(record), key[0], _named(made))

    def _forget(self, key: Key) -> None:
        """Raises RecordsError."""

        def remove(claims: Claims) -> None:
            claims.pop(key, None)
            try:
                self._specs.remove(key)
            except OSError as error:
                log.warning("cannot remove the CDI spec of claim %s, which no container uses: %s", key[1], error)

        if not is_uid(key[1]):
            return
        try:
            self._records.change(remove)
        except RecordsError:
            if key in self._records.read():
                raise
        self._left_over.forget(key)

    async def _check_left_over(self, attempt: "_Attempt", record: PreparedClaim) -> None:
        """Return if no container can have the devices of a record. Raises NotYetError, ClaimError."""
        claim, allocation, other = attempt.claim, attempt.allocation, _named(record)
        taken = [one.device for one in _devices_of(record) if any(one.excludes(each) for each in allocation.devices)]
        is_own = record.uid == claim.uid
        if not is_own:
            found = await self._got(attempt, other)
            still = [device for device in taken if found and has(found, record.uid, record.driver, device)]
            if found and still:
                pods = ", ".join(pods_of(found)) or "none"
                raise ClaimError(
                    f"{claim} has the device {still[0]} of {record.driver}",
                    f"{other} has it, too, for which it is prepared; pods of that: {pods}",
                    "delete one of them",
                )
            if (other.namespace, other.name) == (claim.namespace, claim.name):
                return  # the kubelet refuses a claim while it has another of the same name: it has none any more
        if record.boot_id and BOOT and record.boot_id != BOOT:
            return
        what = f"{', '.join(taken) or 'another device'} of {record.driver} was prepared for {other}"
        await self._left_over.check(
            record, what, self._limits.longest_pause, allocation.pods if is_own else frozenset()
        )


class _Attempt:
    """A call of Prepare on its way."""

    def __init__(self, driver: str, claim: ClaimOfPod) -> None:
        self.driver, self.claim = driver, claim
        self.key: Key = driver, claim.uid
        self.began = time.monotonic()
        self.why = f"the API server has not been asked for {claim}, or has not answered"
        self.allocation = ClaimAllocation((), frozenset())
        self.failures = 0
        """Of calls of the API server, one after the other."""
        self.free: dict[Key, PreparedClaim] = {}
        """Records of claims without a container."""
        self._read_at = float("-inf")

    def age(self) -> float:
        """Seconds since the claim was read."""
        return time.monotonic() - self._read_at

    def use(self, allocation: ClaimAllocation) -> None:
        """The claim was read."""
        self.allocation, self._read_at = allocation, time.monotonic()


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, for so many seconds at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _not_here(attempt: _Attempt, name: str, why: str) -> ClaimError:
    what = f"{attempt.claim} has the device {name} of {attempt.driver}, which is not here"
    return ClaimError(what, why, "delete the pod and the claim if it does not come back")


def _named(record: PreparedClaim) -> ClaimOfPod:
    return ClaimOfPod(record.namespace, record.name, record.uid)


def _devices_of(record: PreparedClaim) -> list[Allocated]:
    """The allocation of which a record was made."""
    return [
        Allocated(device.requests[0], device.pool, device.device, device.share_id, device.admin_access)
        for device in record.devices
        if device.requests and list(device.requests) != [NO_REQUEST]
    ]


def _stands_against(record: PreparedClaim, made: PreparedClaim, allocation: ClaimAllocation) -> bool:
    """Whether a record has a device that the claim is to have, or is the claim's own and had others."""
    if record.driver != made.driver:
        return False
    had = _devices_of(record)
    if record.uid == made.uid:
        return not {one.device for one in had} <= {one.device for one in allocation.devices}
    return any(one.excludes(each) for one in had for each in allocation.devices)


def _spec_in(record: PreparedClaim) -> str:
    return next((device.claim_edits for device in record.devices if device.claim_edits), "")


def _answer(device: PreparedDevice) -> PreparedAnswer:
    ids = tuple(device.cdi_device_ids)
    return PreparedAnswer(tuple(device.requests), device.pool, device.device, ids, device.share_id)


def _known(published: "Sequence[Published]") -> str:
    names = [device.name for device in published]
    more = f" and {len(names) - _LONGEST_LIST} more" if len(names) > _LONGEST_LIST else ""
    return f"known are {', '.join(names[:_LONGEST_LIST])}{more}" if names else "none is known"
