"""A card is lost: red everywhere until it is back or `devherd forget` names it, over restarts and a boot."""

import asyncio
import json
import shutil
import uuid

import pytest
from outside import devherd, get, until_page

from devherd import spool
from devherd.proto import health_pb2
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

GPU = "nvidia.com/gpu"
PLACE = "0000:83:00.0"
EIGHT = preset("nvidia-8")
SPEC = EIGHT.model_copy(update={"nvidia": EIGHT.nvidia.model_copy(update={"nvml": True})})
QUICK = {"health": {"poll": "100ms", "recover_after": 2, "forget_after": "1s"}, "scan": {"period": "300ms"}}


@pytest.fixture
def bed(directory):
    """Eight GPUs with NVML; the state directory outlives the run directory."""
    return Testbed(directory, SPEC, QUICK | {"state_dir": str(directory / "state")})


async def command(bed, *words, code=0):
    """What a command prints."""
    done = await asyncio.to_thread(devherd, *words, "--run-dir", str(bed.settings.run_dir))
    assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


async def until_green(bed):
    """Until `devherd status` finds nothing wrong: the kubelet may know before it that a device is well."""
    words = ("status", "--fail-on-problem", "--run-dir", str(bed.settings.run_dir))
    for _ in range(200):
        done = await asyncio.to_thread(devherd, *words)
        if done.returncode == 0:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(done.stdout + done.stderr)


async def lost_events(bed, count):
    """The events about lost devices, oldest first, once there are so many."""
    for _ in range(200):
        told = (await command(bed, "events", "--kind", "lost", "--output", "json")).splitlines()
        if len(told) >= count:
            break
        await asyncio.sleep(0.05)
    return list(map(json.loads, told))


def remembered(bed):
    """The lost devices in the run directory."""
    return list(spool.read_or_empty(bed.settings.lost_file, health_pb2.Lost).devices)


def take_out(bed, place=PLACE):
    """The GPU leaves the bus, and the driver lets go of it."""
    faults.inject(bed.node, "remove", place)
    shutil.rmtree(bed.settings.host_root / "proc/driver/nvidia/gpus" / place)


async def lose(bed):
    """Remove a GPU for good; its id."""
    before = set(bed.kubelet.devices(GPU))
    take_out(bed)
    await bed.until(lambda: len(bed.kubelet.devices(GPU)) == len(before) - 1, "it leaves the kubelet's list", 30)
    [lost] = before - set(bed.kubelet.devices(GPU))
    await bed.until(lambda: [one.is_listed for one in remembered(bed)] == [False], "it is remembered")
    return lost


async def is_red(bed, gpu):
    """Whether everything that shows the node shows the lost device, once the exporter serves."""
    await until_page(bed, "/healthz", lambda status, _: status == 200)
    status = await command(bed, "status", "--fail-on-problem", code=1)
    told = json.loads(await command(bed, "status", "--output", "json"))["lost"]
    _, metrics = await get(bed, "/metrics")
    _, page = await get(bed, "/")
    _, inventory = await get(bed, "/api/v1/inventory")
    doctor = await asyncio.to_thread(devherd, "doctor", "--run-dir", str(bed.settings.run_dir))
    return {
        "status": gpu in status and PLACE in status,
        "json": [(one["device"], one["pci_address"], one["is_listed"]) for one in told] == [(gpu, PLACE, False)],
        "api": [one["device"] for one in json.loads(inventory)["lost"]] == [gpu],
        "metric": f'devherd_device_missing{{device_id="{gpu}"' in metrics and f'pci_address="{PLACE}"' in metrics,
        "page": '<strong class="bad">Unhealthy</strong>' in page and f"{GPU}: 1 device missing" in page,
        "doctor": gpu in doctor.stdout,
    }


ALL_RED = dict.fromkeys(("status", "json", "api", "metric", "page", "doctor"), True)


async def test_a_lost_card_is_red_everywhere_over_restarts_and_a_boot_until_it_is_back(bed):
    """Defect: after `forget_after` all was green, the metric gone, the alert over, and nothing knew the device."""
    async with bed:
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        gpu = await lose(bed)
        assert await is_red(bed, gpu) == ALL_RED
        [known] = remembered(bed)
        assert (known.slot, known.serial, known.model) == ("129", "1565023010004", "NVIDIA H100 80GB HBM3")

        await command(bed, "ctl", "restart", "scanner")
        assert await is_red(bed, gpu) == ALL_RED
        await bed.stop_herd()
        shutil.rmtree(bed.settings.run_dir)
        await bed.start_herd()
        await bed.kubelet.until_allocatable(GPU, 7, within=30)
        await bed.until(lambda: len(remembered(bed)) == 1, "it is remembered over a boot")
        assert await is_red(bed, gpu) == ALL_RED

        bed.node.repair(SPEC)
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        await bed.until(lambda: not remembered(bed), "it is back")
        await bed.until(bed.runs, "all run")
        await until_green(bed)
        _, metrics = await get(bed, "/metrics")
        assert "devherd_device_missing{" not in metrics
        assert not (bed.directory / "state/lost.pb").exists()
        events = await lost_events(bed, 1)
    assert [(event["device_id"], event["message"].partition(" after")[0]) for event in events] == [(gpu, "is back")]


async def test_a_device_that_a_pod_holds_stays_listed_and_its_pod_is_remembered(bed):
    """It is lost all the same; forgotten, it stays in the list, Unhealthy, for as long as the pod does."""
    async with bed:
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        await bed.kubelet.allocate(GPU, 8, pod="train")
        take_out(bed)
        await bed.until(
            lambda: [list(one.pods) for one in remembered(bed)] == [["default/train"]], "its pod is known", 30
        )
        [known] = remembered(bed)
        assert known.is_listed
        assert bed.kubelet.devices(GPU)[known.device] == "Unhealthy"

        assert f"{GPU} {known.device} is forgotten" in await command(bed, "forget", known.device[:12])
        assert not remembered(bed)
        await asyncio.sleep(2)
        assert (remembered(bed), bed.kubelet.devices(GPU)[known.device]) == ([], "Unhealthy")


async def test_an_operator_forgets_a_lost_device_by_any_of_its_names_with_devherd_running_or_not(bed):
    """By its PCI address while devherd runs; by `--all` while it does not. Neither comes back by a restart."""
    async with bed:
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        gpu = await lose(bed)
        assert f"{GPU} {gpu} is forgotten" in await command(bed, "forget", PLACE)
        await until_green(bed)
        assert (await command(bed, "forget", "--all")).strip() == "no device is lost"
        await command(bed, "forget", gpu, code=2)
        bed.node.repair(SPEC)
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        gpu = await lose(bed)
        await bed.stop_herd()
        state = str(bed.directory / "state")
        done = devherd("forget", "--all", "--run-dir", str(bed.settings.run_dir), "--state-dir", state)
        assert (done.returncode, done.stdout) == (0, f"{GPU} {gpu} is forgotten\n"), done.stderr
        await bed.start_herd()
        await bed.kubelet.until_allocatable(GPU, 7, within=30)
        await bed.until(bed.runs, "all run")
        await until_green(bed)
        assert not remembered(bed)
        events = await lost_events(bed, 4)
    words = [event["message"].partition(":")[0].partition(" by")[0] for event in events]
    assert words == ["is missing", "forgotten", "is missing", "forgotten"]


async def test_a_cordoned_device_that_leaves_and_a_repartitioned_gpu_are_not_lost(directory):
    """Somebody has said that the one goes; of the other the card is there."""
    mixed = QUICK | {"vendors": {"nvidia": {"mig_strategy": "mixed"}}}
    bed = Testbed(directory, preset("nvidia-mig"), mixed)
    part = "nvidia.com/mig-3g.40gb"
    async with bed:
        await bed.kubelet.until_allocatable(GPU, 2, within=30)
        await bed.kubelet.until_allocatable(part, 2, within=30)
        cordoned = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, '0000:02:00.0')}"
        await command(bed, "cordon", GPU, cordoned)
        await bed.until(lambda: bed.kubelet.devices(GPU)[cordoned] == "Unhealthy", "it is cordoned")
        bed.node.nvidia.destroy_mig_device("0000:81:00.0", 1)
        take_out(bed, "0000:02:00.0")
        await bed.until(lambda: len(bed.kubelet.devices(part)) == 1, "a MIG device leaves the list", 30)
        await bed.until(lambda: len(bed.kubelet.devices(GPU)) == 1, "the cordoned GPU leaves the list", 30)
        assert not remembered(bed)
        assert not await lost_events(bed, 0)


@pytest.mark.parametrize("is_copied", [False, True])
async def test_a_card_that_is_not_there_after_a_boot_is_lost_unless_the_state_is_of_another_machine(bed, is_copied):
    """Nothing in memory knows that it was there: the state directory does, which may have been copied with a disk."""
    boot_id = bed.settings.host_root / "proc/sys/kernel/random/boot_id"
    machine = bed.settings.host_root / "sys/class/dmi/id/product_uuid"
    for file in (boot_id, machine):
        file.parent.mkdir(parents=True)
        file.write_text("a\n")
    async with bed:
        await bed.kubelet.until_allocatable(GPU, 8, within=30)
        gpus = set(bed.kubelet.devices(GPU))
        await bed.until((bed.directory / "state/present.pb").exists, "it is kept what is there")
        await bed.stop_herd()
        shutil.rmtree(bed.settings.run_dir)
        boot_id.write_text("b\n")
        if is_copied:
            machine.write_text("b\n")
        take_out(bed)
        await bed.start_herd()
        await bed.kubelet.until_allocatable(GPU, 7, within=30)
        if is_copied:
            log = f"{bed.directory}/state/present.pb is of another machine (a, this is b)"
            await bed.until(lambda: log in bed.log, "it says so")
            assert (remembered(bed), await lost_events(bed, 0)) == ([], [])
            return
        await bed.until(lambda: remembered(bed), "it is lost")
        [gpu] = gpus - set(bed.kubelet.devices(GPU))
        assert await is_red(bed, gpu) == ALL_RED
        [event] = await lost_events(bed, 1)
    assert event["message"] == "is missing since the boot: was at 0000:83:00.0, slot 129, serial 1565023010004"
