"""Prepare: which devices are waited for, which are refused at once, and who may have a device."""

import asyncio
import errno

import pytest
from preparing import DRIVER, HURRIED, PATIENT, answer, claim, refusal, result, uid, waiting

from devherd.dra import preparation as module
from devherd.dra.claim import NotYetError
from devherd.dra.left_over import LeftOver
from devherd.dra.preparation import Limits
from devherd.proto.spool_pb2 import PreparedClaim

# Devices


async def test_devices_that_are_being_read_are_waited_for(node):
    """After a start NVML's facts come later; before, there are no files."""
    node.pools.pools, pools = None, node.pools.pools
    node.api.allocate(claim(1), result("gpu-0"))
    task = await waiting(node.process(), claim(1))
    node.pools.pools = pools
    node.pools.withhold("gpu-0", "it waits for `uuid`", is_awaited=True, is_named=False)
    await asyncio.sleep(0.05)
    assert not task.done()
    node.pools.add("gpu-0")
    assert await task == [answer("gpu-0")]

    node.pools.withhold("gpu-1", "it waits for `uuid`", is_awaited=True)
    node.api.allocate(claim(2), result("gpu-1"))
    assert "gpu-1 of gpu.amd.com is being read: it waits for `uuid`" in await refusal(node.process(HURRIED), claim(2))


async def test_a_static_spec_that_is_being_written_is_waited_for(node):
    node.pools.add("gpu-0")
    spec = node.cdi_directory / "amd.com-gpu.json"
    spec.unlink()
    node.api.allocate(claim(1), result("gpu-0"))
    assert "the CDI spec of amd.com/gpu=gpu-0 is not written yet" in await refusal(node.process(HURRIED), claim(1))
    task = await waiting(node.process(), claim(1))
    node.pools.write_specs()
    assert await task == [answer("gpu-0")]


async def test_a_device_whose_edits_are_not_there_is_waited_for(node):
    """The scanner's files are of different moments."""
    node.pools.add("gpu-0")
    edits = node.pools.edits.pop(("amd", "gpu-0", "gpu-0"))
    node.api.allocate(claim(1), result("gpu-0"))
    task = await waiting(node.process(), claim(1))
    node.pools.edits["amd", "gpu-0", "gpu-0"] = edits
    assert await task == [answer("gpu-0")]


@pytest.mark.parametrize(
    "why", ["it is gone", "it is divided: only its parts can be published", "its `memory` is not known"]
)
async def test_a_device_that_is_withheld_is_refused_at_once_with_the_reason(node, why):
    node.pools.add("gpu-1")
    node.pools.withhold("gpu-0", why)
    node.pools.withhold("gpu-2", "it waits for `uuid`", is_awaited=True)
    node.api.allocate(claim(1), result("gpu-0"))
    assert await refusal(node.process(), claim(1)) == (
        f"devherd: claim default/claim-1 has the device gpu-0 of gpu.amd.com, which is not here — {why}"
        " — delete the pod and the claim if it does not come back"
    )


async def test_a_device_that_is_gone_is_refused_though_it_is_published_for_the_claim_that_holds_it(node):
    """Whose answer stays the same."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    process = node.process()
    first = await process.prepare(DRIVER, claim(1))
    node.pools.pools.devices[DRIVER][0].subject.entry.gone_since = 1.0
    node.api.remove(claim(1))
    node.api.allocate(claim(2), result("gpu-0"))
    assert "which is not here — it is gone" in await refusal(process, claim(2))
    node.api.allocate(claim(1), result("gpu-0"))
    assert await process.prepare(DRIVER, claim(1)) == first


async def test_a_device_that_is_not_known_is_refused_at_once_with_those_that_are(node):
    node.api.allocate(claim(1), result("gpu-9-999"))
    assert "which is not here — none is known" in await refusal(node.process(), claim(1))
    node.pools.add(*(f"gpu-{number}" for number in range(10)))
    said = await refusal(node.process(), claim(1))
    assert "known are gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and 2 more" in said


async def test_without_a_descriptor_the_devices_are_read_again(node):
    def fail():
        raise OSError(errno.EMFILE, "Too many open files")

    node.pools.add("gpu-0")
    node.pools.looks = [fail, fail]
    node.api.allocate(claim(1), result("gpu-0"))
    assert await node.process().prepare(DRIVER, claim(1)) == [answer("gpu-0")]


# Who may have a device


async def test_a_device_of_a_claim_that_is_alive_is_refused_at_once(node):
    """The scheduler gives none twice: somebody else has written the claim's status."""
    node.pools.add("gpu-0", "gpu-1")
    node.api.allocate(claim(1), result("gpu-0"), pods=["a", "b"])
    await node.process().prepare(DRIVER, claim(1))
    node.api.allocate(claim(2), result("gpu-1"), result("gpu-0"))

    assert await refusal(node.process(), claim(2)) == (
        "devherd: claim default/claim-2 has the device gpu-0 of gpu.amd.com"
        " — claim default/claim-1 has it, too, for which it is prepared; pods of that: a, b — delete one of them"
    )
    assert [*node.records()] == [uid(1)]


async def forced(node, *, limits=PATIENT):
    """A claim whose pod was deleted by force, and a process."""
    node.pools.add("gpu-0", "gpu-1", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"))
    await node.process().prepare(DRIVER, claim(1))
    node.api.remove(claim(1))
    node.api.allocate(claim(2), result("gpu-0"))
    await node.kubelet.start()
    return node.process(limits)


@pytest.mark.parametrize("is_twin", [False, True])
async def test_a_device_of_a_pod_that_was_deleted_by_force_is_free_once_it_is_unprepared(node, is_twin):
    """Not before: its container still runs, though PodResources leaves the pod out at once."""
    process = await forced(node, limits=Limits(pause=0.005, longest_pause=0.05))
    task = await waiting(process, claim(2))
    async with asyncio.timeout(30):
        while not node.kubelet.asked:  # noqa: ASYNC110 - counted by a server
            await asyncio.sleep(0.01)
    assert not task.done()

    await (node.process() if is_twin else process).unprepare(DRIVER, uid(1))

    assert (await task)[0].device == "gpu-0"
    assert [*node.records()] == [uid(2)]


async def test_a_device_that_a_container_still_has_is_refused_at_the_end_of_the_call_with_claim_and_pod(node):
    process = await forced(node, limits=HURRIED)
    node.kubelet.shows("old", claim(1), "gpu-0")
    said = await refusal(process, claim(2))
    assert "gpu-0 of gpu.amd.com was prepared for claim default/claim-1, and" in said
    assert "and container main of pod default/old still has it (waited 1 s)" in said


async def test_a_claim_that_is_gone_blocks_no_device_for_ever(node):
    """Of which no container is shown for longer than the kubelet's loop takes to unprepare it."""
    process = await forced(node)
    node.kubelet.shows("another", claim(1), "gpu-1")
    node.kubelet.shows("old", claim(1), "gpu-0")
    task = await waiting(process, claim(2))
    del node.kubelet.answer.pod_resources[1]

    assert (await task)[0].device == "gpu-0"
    assert [*node.records()] == [uid(2)]
    assert node.claim_specs() == [f"devherd-claim-{DRIVER}-{uid(2)}.json"]


async def test_a_kubelet_that_has_just_started_does_not_show_that_a_claim_is_over(node):
    """It does not know its pods at once: the time begins anew."""
    now = [0.0]
    left_over = LeftOver(node.settings.pod_resources_socket, 75.0, lambda: now[0])
    record = PreparedClaim(driver=DRIVER, uid=uid(1), namespace="default", name="claim-1")

    async def is_over():
        try:
            await left_over.check(record, "gpu-0", 1.0, frozenset())
        except NotYetError:
            return False
        return True

    await node.kubelet.start()
    seen = []
    for now[0] in (0.0, 74.0, 75.0):
        seen.append(await is_over())
    await node.kubelet.start()
    for now[0] in (76.0, 150.0, 151.0):
        seen.append(await is_over())
    await node.kubelet.stop()
    seen.append(await is_over())
    assert seen == [False, False, True, False, False, True, False]


async def test_while_the_kubelet_says_nothing_nobody_knows_whether_a_device_is_free(node):
    process = await forced(node, limits=HURRIED)
    await node.kubelet.stop()
    assert "and the kubelet does not say whether a pod has it" in await refusal(process, claim(2))


async def test_no_container_is_older_than_the_boot(node, monkeypatch):
    """A dead node's pods are deleted by force; when it is back, their devices are free at once."""
    await forced(node)
    await node.kubelet.stop()
    monkeypatch.setattr(module, "BOOT", "another")
    assert (await node.process().prepare(DRIVER, claim(2)))[0].device == "gpu-0"
    assert [*node.records()] == [uid(2)]


async def test_a_claim_that_is_alive_keeps_its_device_over_a_boot(node, monkeypatch):
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    await node.process().prepare(DRIVER, claim(1))
    monkeypatch.setattr(module, "BOOT", "another")
    node.api.allocate(claim(2), result("gpu-0"))
    assert "claim default/claim-1 has it, too" in await refusal(node.process(), claim(2))


async def test_a_claim_of_the_same_name_follows_the_one_before_at_once(node):
    """The kubelet refuses it itself while it has the other."""
    await forced(node)
    await node.kubelet.stop()
    node.api.allocate(claim(3, "claim-1"), result("gpu-0"))
    assert (await node.process().prepare(DRIVER, claim(3, "claim-1")))[0].device == "gpu-0"
    assert [*node.records()] == [uid(3)]


async def test_a_claim_that_has_other_devices_now_gives_back_those_that_it_had(node):
    """Once no container of another pod has them; its own pods are shown with what the kubelet remembers."""
    node.pools.add("gpu-0", "gpu-1")
    process = node.process()
    node.api.allocate(claim(1), result("gpu-0"))
    await process.prepare(DRIVER, claim(1))
    await node.kubelet.start()
    node.kubelet.shows("old", claim(1), "gpu-0")
    node.kubelet.shows("new", claim(1), "gpu-0")
    node.api.allocate(claim(1), result("gpu-1"), pods=["new"])
    task = await waiting(process, claim(1))
    del node.kubelet.answer.pod_resources[0]

    assert await task == [answer("gpu-1")]
    node.api.allocate(claim(2), result("gpu-0"))
    assert await process.prepare(DRIVER, claim(2)) == [answer("gpu-0")]


async def test_shares_of_a_device_and_administrators_exclude_nobody(node):
    """Nor does an administrator's claim keep the owner out after a restart."""
    node.pools.add("gpu-0", "gpu-1")
    node.api.allocate(claim(1), result("gpu-0", shareID="s-1"))
    node.api.allocate(claim(2), result("gpu-0", shareID="s-2"))
    node.api.allocate(claim(3), result("gpu-0", adminAccess=True), result("gpu-1", adminAccess=True))
    node.api.allocate(claim(4), result("gpu-1"))
    node.api.allocate(claim(5), result("gpu-0"))
    for _ in range(2):
        process = node.process()
        assert await process.prepare(DRIVER, claim(1)) == [answer("gpu-0", share="s-1")]
        assert await process.prepare(DRIVER, claim(2)) == [answer("gpu-0", share="s-2")]
        assert await process.prepare(DRIVER, claim(3)) == [answer("gpu-0"), answer("gpu-1")]
        assert await process.prepare(DRIVER, claim(4)) == [answer("gpu-1")]
    assert "has it, too" in await refusal(process, claim(5))
