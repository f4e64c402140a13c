"""Prepare and Unprepare: what is answered, what is waited for, what is refused at once, and who may have a device."""

import asyncio
import errno
import fcntl
import json
import os
from dataclasses import replace

import pytest
from cdi_runtime import check
from preparing import (
    DRIVER,
    HURRIED,
    answer,
    claim,
    refusal,
    result,
    uid,
    waiting,
)

from devherd import cdi, spool
from devherd.cdi import CdiDirectory
from devherd.dra import preparation as module
from devherd.dra.claim import ClaimError
from devherd.dra.preparation import Limits

# What is answered


async def test_the_devices_of_a_claim_are_answered_and_noted(node):
    """By the ids of CDI specs that stand already."""
    node.pools.add("gpu-0", "gpu-1")
    node.api.allocate(claim(1), result("gpu-1"), result("gpu-0", request="other/large"))

    assert await node.process().prepare(DRIVER, claim(1)) == [answer("gpu-1"), answer("gpu-0", request="other")]
    noted = node.records()[uid(1)]
    assert (noted.driver, noted.namespace, noted.name) == (DRIVER, "default", "claim-1")
    assert [device.device for device in noted.devices] == ["gpu-1", "gpu-0"]
    assert node.claim_specs() == []


async def test_a_claim_may_have_32_devices_or_none(node):
    names = [f"gpu-{number}" for number in range(32)]
    node.pools.add(*names)
    node.api.allocate(claim(1), *map(result, names))
    node.api.allocate(claim(2))
    process = node.process()

    assert await process.prepare(DRIVER, claim(1)) == [answer(name) for name in names]
    assert await process.prepare(DRIVER, claim(2)) == []
    assert [*node.records()] == [uid(1)]


async def test_the_same_claim_has_the_same_answer_whatever_was_restarted(node, monkeypatch):
    """The kubelet forgets that a claim is prepared when it restarts, and with 1.37 the last answer replaces others."""
    node.pools.add("gpu-0", "gpu-1", envs={"CARDS": "1"})
    node.api.allocate(claim(1), result("gpu-0"), result("gpu-1"))
    first = await node.process().prepare(DRIVER, claim(1))

    again = node.process()
    again.restore()
    assert await again.prepare(DRIVER, claim(1)) == first
    node.pools.withhold("gpu-0", "its `memory` is not known, and that of others of its type is")
    assert await again.prepare(DRIVER, claim(1)) == first

    monkeypatch.setattr(module, "BOOT", "another")  # and /run is empty
    for path in node.cdi_directory.iterdir():
        path.unlink()
    node.pools.pools, pools = None, node.pools.pools
    node.pools.looks = [node.pools.write_specs, lambda: setattr(node.pools, "pools", pools)]
    assert await node.process().prepare(DRIVER, claim(1)) == first
    assert node.records()[uid(1)].boot_id == "another"
    assert len(node.claim_specs()) == 1


async def test_a_device_that_is_named_otherwise_after_an_upgrade_is_answered_as_it_is(node):
    """The spec of the earlier name is not there any more."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    process = node.process()
    await process.prepare(DRIVER, claim(1))
    (node.cdi_directory / "amd.com-gpu.json").unlink()
    node.pools.edits["amd", "gpu-0", "gpu-0"].cdi_devices[:] = ["amd.com/card=0"]
    (node.cdi_directory / "amd.com-card.json").touch()

    assert (await process.prepare(DRIVER, claim(1)))[0].cdi_device_ids == ("amd.com/card=0",)
    assert node.records()[uid(1)].devices[0].cdi_device_ids == ["amd.com/card=0"]


async def test_256_pods_of_a_claim_in_both_processes_are_answered_alike(node):
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"), pods=[f"pod-{number}" for number in range(256)])
    both = node.process(), node.process()

    answers = await asyncio.gather(*(both[number % 2].prepare(DRIVER, claim(1)) for number in range(256)))

    assert all(each == answers[0] for each in answers)
    assert [*node.records()] == [uid(1)]


async def test_unprepare_asks_nobody_and_an_unknown_claim_is_no_error(node):
    """The claim may be gone from the API server, and that away."""
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"))
    await node.process().prepare(DRIVER, claim(1))
    assert len(node.claim_specs()) == 1
    node.api.close()
    calls = len(node.api.calls)

    for unknown in (uid(1), uid(1), uid(2), "../../../etc/passwd", ""):
        await node.process().unprepare(DRIVER, unknown)

    assert node.records() == {}
    assert node.claim_specs() == []
    assert len(node.api.calls) == calls


async def test_the_drivers_with_claims_are_known(node):
    """They are served although their devices are gone."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    assert node.process().drivers() == set()
    await node.process().prepare(DRIVER, claim(1))
    assert node.process().drivers() == {DRIVER}


# Claim specs


def edits_of(node, *answers):
    """What a runtime does for a container that gets the ids of these answers: variables, the last value counts."""
    ids = [name for each in answers for name in each.cdi_device_ids]
    known = {}
    for path in node.cdi_directory.glob("*.json"):
        spec = json.loads(path.read_text())
        check(spec)
        known |= {f"{spec['kind']}={one['name']}": one["containerEdits"] for one in spec["devices"]}
    return dict(line.split("=", 1) for name in ids for line in known[name].get("env", ()))


async def test_variables_are_joined_over_the_devices_that_a_container_gets_together(node):
    """It may name a request, or none, and gets the devices of that, or all."""
    for number in range(4):
        node.pools.add(f"vf-{number}", envs={"PCIDEVICE_A": f"0000:0{number}:00.0"})
    results = [result("vf-0", "a"), result("vf-1", "a"), result("vf-2", "b"), result("vf-3", "b")]
    node.api.allocate(claim(1), *results)

    answers = await node.process().prepare(DRIVER, claim(1))

    of_a, of_b = ([each for each in answers if name in each.requests] for name in "ab")
    assert edits_of(node, *of_a) == {"PCIDEVICE_A": "0000:00:00.0,0000:01:00.0"}
    assert edits_of(node, *of_b) == {"PCIDEVICE_A": "0000:02:00.0,0000:03:00.0"}
    assert edits_of(node, *answers) == {"PCIDEVICE_A": "0000:00:00.0,0000:01:00.0,0000:02:00.0,0000:03:00.0"}
    assert [each.device for each in of_a + of_b] == ["vf-0", "vf-1", "vf-2", "vf-3"]
    assert node.claim_specs() == [f"devherd-claim-{DRIVER}-{uid(1)}.json"]
    assert await node.process().prepare(DRIVER, claim(1)) == answers


async def test_a_claim_of_one_request_has_one_name_in_its_spec(node):
    node.pools.add("gpu-0", "gpu-1", envs={"CARDS": "all"})
    node.api.allocate(claim(1), result("gpu-0"), result("gpu-1"))

    name = f"k8s.{DRIVER}/claim={uid(1)}-gpu"
    assert cdi.is_legal(name)
    assert await node.process().prepare(DRIVER, claim(1)) == [answer("gpu-0"), answer("gpu-1", name)]


async def test_specs_of_claims_are_made_anew_without_the_api_server_and_left_alone_by_the_scanner(node):
    """/var/run is empty after a boot, and a container may be made again by ids that the kubelet remembers."""
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"))
    await node.process().prepare(DRIVER, claim(1))
    (file,) = node.cdi_directory.glob("devherd-claim-*")
    text = file.read_text()
    node.api.close()
    file.unlink()
    other = file.with_name(f"devherd-claim-{DRIVER}-{uid(2)}.json")
    other.write_text("of an earlier boot")
    os.utime(other, (1.0, 1.0))

    node.process().restore()
    CdiDirectory(node.cdi_directory, node.cdi_directory).publish()

    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o644
    assert not other.exists()


def unwritable(monkeypatch, directory, error):
    """Files in the directory cannot be written."""
    really = spool.replace

    def replace(path, *arguments, **options):
        if path.is_relative_to(directory):
            raise OSError(error, os.strerror(error))
        really(path, *arguments, **options)

    monkeypatch.setattr(spool, "replace", replace)


async def test_a_read_only_cdi_directory_is_said_at_once(node, monkeypatch, caplog):
    """Nothing is noted; a claim without a spec of its own needs none."""
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.pools.add("gpu-1")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.allocate(claim(2), result("gpu-1"))
    unwritable(monkeypatch, node.cdi_directory, errno.EROFS)
    process = node.process()

    said = await refusal(process, claim(1))

    assert f"its CDI spec in {node.cdi_directory} cannot be written — Read-only file system" in said
    assert await process.prepare(DRIVER, claim(2)) == [answer("gpu-1")]
    assert [*node.records()] == [uid(2)]
    process.restore()


async def test_on_a_full_disk_nothing_is_promised_until_there_is_room(node, monkeypatch):
    """And pods can end."""
    node.pools.add("gpu-0", "gpu-1")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.allocate(claim(2), result("gpu-1"))
    await node.process().prepare(DRIVER, claim(1))
    unwritable(monkeypatch, node.settings.state_dir, errno.ENOSPC)

    said = await refusal(node.process(HURRIED), claim(2))
    assert "cannot be written — No space left on device — make room in" in said
    assert [*node.records()] == [uid(1)]
    await node.process().unprepare(DRIVER, uid(1))
    assert node.records() == {}

    task = await waiting(node.process(), claim(2))
    monkeypatch.undo()
    assert await task == [answer("gpu-1")]


async def test_a_damaged_record_costs_no_claim(node, caplog):
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    process = node.process()
    first = await process.prepare(DRIVER, claim(1))
    node.settings.prepared_claims_file.write_bytes(b"torn")

    assert await process.prepare(DRIVER, claim(1)) == first
    assert [*node.records()] == [uid(1)]
    assert caplog.text.count("is damaged") == 1


async def test_a_spec_of_a_claim_is_written_under_the_lock_alone(node, monkeypatch):
    """Defect: of two processes that wrote it one found its temporary file gone, and the pod was refused."""
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"))
    really, locked, lock = spool.replace, [], node.settings.prepared_claims_file.with_suffix(".lock")

    def replace(path, *arguments, **options):
        with lock.open("rb") as another, pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked.append(path)
        really(path, *arguments, **options)

    monkeypatch.setattr(spool, "replace", replace)
    process = node.process()
    await process.prepare(DRIVER, claim(1))
    (file,) = node.cdi_directory.glob("devherd-claim-*")
    file.unlink()
    await process.prepare(DRIVER, claim(1))
    file.unlink()
    process.restore()
    assert locked.count(file) == 3


@pytest.mark.parametrize("content", [None, b"torn"])
async def test_a_lost_record_takes_no_spec_from_a_running_pod(node, content):
    """Defect: the kubelet makes a container again by ids that it remembers, and does not prepare the claim again."""
    node.pools.add("gpu-0", envs={"CARDS": "0"})
    node.api.allocate(claim(1), result("gpu-0"))
    process = node.process()
    await process.prepare(DRIVER, claim(1))
    specs = node.claim_specs()
    node.settings.prepared_claims_file.unlink()
    if content is not None:
        node.settings.prepared_claims_file.write_bytes(content)

    process.restore()
    node.process().restore()
    assert node.claim_specs() == specs
    await process.unprepare(DRIVER, uid(1))
    assert node.claim_specs() == []


async def test_a_twin_that_hangs_with_the_lock_is_waited_for_within_the_call(node):
    """The supervisor replaces it meanwhile."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    lock = node.settings.prepared_claims_file.with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process of devherd has held its lock" in await refusal(node.process(HURRIED), claim(1))
        await node.process(HURRIED).unprepare(DRIVER, uid(2))
        task = await waiting(node.process(), claim(1))
    assert await task == [answer("gpu-0")]

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ClaimError, match="cannot be unprepared"):
            await node.process(HURRIED).unprepare(DRIVER, uid(1))


async def test_a_twin_that_hangs_with_the_lock_keeps_no_loop_waiting(node, caplog):
    """Defect: it stood still for three seconds when claim specs were looked after."""
    process = node.process(Limits(lock=3600.0))
    process.restore()
    with node.settings.prepared_claims_file.with_suffix(".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process.restore()
    assert "the CDI specs of prepared claims are not looked after" in caplog.text


async def test_files_that_do_not_come_back_do_not_keep_the_kubelet_waiting(node, monkeypatch):
    """As on a dead disk: a thread waits for ever, and the call is answered."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    goes_on = node.api.goes_on
    monkeypatch.setattr(spool, "replace", lambda *_, **__: goes_on.wait(60))
    process = node.process(Limits(call=1.0, files=0.1, longest_pause=0.02))

    assert "work on the files of claims does not come back" in await refusal(process, claim(1))
    with pytest.raises(ClaimError, match="does not come back"):
        await process.unprepare(DRIVER, uid(1))
    goes_on.set()


# The API server


@pytest.mark.parametrize("refusals", [[500], [503, 502], [429], [401], [401, 401, 401], [None], [408, 504]])
async def test_what_may_heal_of_the_api_server_is_waited_for_within_the_call(node, refusals):
    """A failed Prepare is tried again after 60 to 90 s."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.refusals = refusals

    assert await node.process().prepare(DRIVER, claim(1)) == [answer("gpu-0")]
    assert node.api.refusals == []


@pytest.mark.parametrize("raw", [b"<html>bad gateway</html>", b"[]", b"{}", b'{"metadata": 5}'])
async def test_an_answer_that_is_no_claim_is_asked_for_again(node, raw):
    """As of a proxy before the API server."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.raw = raw
    task = await waiting(node.process(), claim(1))
    node.api.raw = b""
    assert await task == [answer("gpu-0")]


async def test_a_renewed_token_is_used_by_the_next_call(node):
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.token = "second"
    task = await waiting(node.process(), claim(1))
    (node.api.directory / "token").unlink()
    await asyncio.sleep(0.05)
    (node.api.directory / "token").write_text("second")
    assert await task == [answer("gpu-0")]


async def test_the_server_is_asked_again_when_it_wants_to_be(node):
    """Not before: it has said that it is overloaded."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.refusals, node.api.retry_after = [429] * 100, "60"
    assert "429" in await refusal(node.process(HURRIED), claim(1))
    assert len(node.api.calls) == 1


async def test_a_server_that_restarts_is_asked_over_a_new_connection(node):
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    process = node.process()
    await process.prepare(DRIVER, claim(1))
    node.api.is_closing = True
    for _ in range(3):
        assert await process.prepare(DRIVER, claim(1)) == [answer("gpu-0")]


async def test_an_api_server_that_stays_away_is_said_at_the_end_of_the_call(node):
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.close()
    said = await refusal(node.process(HURRIED), claim(1))
    assert said.startswith(
        "devherd: claim default/claim-1 cannot be prepared — claim default/claim-1 cannot be read from"
    )
    assert said.endswith("(waited 1 s) — the kubelet tries again by itself")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "the API server refuses it: 400: Bad Request"),
        (404, "claim default/claim-1 is gone — the API server has none of this name — delete the pod"),
    ],
)
async def test_what_does_not_heal_of_the_api_server_is_said_at_once(node, status, said):
    node.api.refusals = [status]
    assert said in await refusal(node.process(), claim(1))
    assert len(node.api.calls) == 1


async def test_a_server_that_does_not_know_yet_whose_pod_it_is_is_asked_again(node):
    """Of several servers the Node authorizer of one may be late."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    node.api.refusals = [403, 403]
    assert (await node.process().prepare(DRIVER, claim(1)))[0].device == "gpu-0"


async def test_a_right_that_is_lacking_is_said(node):
    node.api.refusals = [403] * 1000
    said = await refusal(node.process(replace(HURRIED, refused=0.05)), claim(1))
    assert "devherd lacks the right to `get` `resourceclaims` of `resource.k8s.io` (403: Forbidden) — grant it" in said


async def test_a_claim_that_the_server_refuses_to_show_counts_as_gone_unless_it_is_the_one_to_prepare(node):
    """A kubelet's credential reads claims of this node's pods alone; the other one's pod was deleted by force."""
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"))
    await node.kubelet.start()
    await node.process().prepare(DRIVER, claim(1))
    node.api.allocate(claim(2), result("gpu-0"))
    answers = node.api.answer

    def answer(method, path, body):
        return (403, {"message": "forbidden"}) if path.endswith("claim-1") else answers(method, path, body)

    node.api.answer = answer
    await node.process().prepare(DRIVER, claim(2))
    assert node.records().keys() == {uid(2)}


async def test_without_access_to_an_api_server_that_is_said(node):
    node.access = None
    assert "neither a pod's token nor a `kubeconfig` is there" in await refusal(node.process(), claim(1))


async def test_a_claim_that_was_replaced_or_lost_its_allocation_is_refused_at_once(node):
    node.api.allocate(claim(2, "claim-1"), result("gpu-0"))
    assert "was replaced" in await refusal(node.process(), claim(1))
    node.api.claims["default", "claim-1"] = {"metadata": {"uid": uid(1)}}
    assert "not allocated" in await refusal(node.process(), claim(1))


async def test_a_configuration_that_is_not_served_is_refused_at_once(node):
    parameters = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "VfioDeviceConfig"}
    asks = {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}
    node.pools.add("gpu-0")
    node.api.allocate(claim(1), result("gpu-0"), configs=[asks])
    assert "`kind: VfioDeviceConfig` in the configuration of the claim" in await refusal(node.process(), claim(1))


async def test_a_claim_that_waits_keeps_no_other_waiting(node):
    """Pods are prepared at the same time."""
    node.pools.add("gpu-0")
    node.pools.withhold("gpu-1", "it waits for `uuid`", is_awaited=True)
    for number in range(1, 20):
        node.api.allocate(claim(number), result("gpu-1"))
    node.api.allocate(claim(20), result("gpu-0"))
    process = node.process()
    tasks = [await waiting(process, claim(number)) for number in range(1, 20)]

    assert await process.prepare(DRIVER, claim(20)) == [answer("gpu-0")]
    for task in tasks:
        task.cancel()
