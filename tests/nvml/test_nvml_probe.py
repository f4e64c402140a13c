"""One attempt, as a process of its own, before a library with NVML's interface that says what a test wants."""

import json
import re
import signal
import subprocess
import sys

import pytest
from nvml_stub import A100, Stub, address, mig_uuid, uuid

from devherd.sources.nvml import session


def probe(stub, **request):
    """The finished process; without more it asks the stub."""
    command = [sys.executable, "-P", "-m", "devherd.sources.nvml.main"]
    request = {key: str(value) for key, value in (request or {"library": stub.library}).items()}
    text = json.dumps(request | {"patience_seconds": 60})
    return subprocess.run(
        command, check=False, env=stub.environment, input=text, capture_output=True, text=True, timeout=60
    )


def answer(stub, **request):
    """What it answers."""
    done = probe(stub, **request)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def facts(stub, **request):
    """The facts, of an attempt that has succeeded."""
    told = answer(stub, **request)
    assert (told["failures"], told["problem"], told["asking"]) == (0, None, None)
    return told["facts"]


def problem(stub, **request):
    """Why there are no facts."""
    told = answer(stub, **request)
    assert (told["facts"], told["failures"]) == (None, 1)
    return told["problem"]


def gpu(number, **values):
    """A GPU as it is printed."""
    return {
        "pci_address": address(number), "index": number, "uuid": uuid(number), "minor": number,
        "model": "NVIDIA A100-SXM4-40GB", "serial": None, "memory_bytes": A100, "compute_capability": [8, 0],
        "brand": "Nvidia", "architecture": "Ampere", "addressing_mode": "None",
        "mig_mode": None, "mig_devices": [], "nvlinks": {}, "switch_links": 0, "switch_ports": {},
        "fabric_clique": None,
    } | values  # fmt: skip


def test_it_prints_what_nvml_tells_of_every_gpu(stub):
    """Two GPUs, one of which has no serial number: every fact, and nothing to complain about."""
    stub.gpu(0, serial="1565023018293").gpu(1, minor=4).write()
    assert facts(stub) == {
        "driver_version": "590.48.01",
        "cuda_version": "13.1",
        "gpus": [gpu(0, serial="1565023018293"), gpu(1, minor=4)],
        "problems": [],
    }


def test_a_host_without_gpus_is_none_to_complain_about(stub):
    """A driver without GPUs."""
    assert facts(stub)["gpus"] == []


def test_the_library_is_found_below_a_driver_root(stub, tmp_path):
    """As the driver container leaves it: a link to a file with the version in its name."""
    root = stub.gpu(0).write().put_below(tmp_path / "driver")
    assert facts(stub, driver_root=root)["gpus"] == [gpu(0)]
    assert facts(stub, driver_root=tmp_path, library=stub.library)["gpus"] == [gpu(0)]


def test_mig_devices_have_their_exact_profile_and_uuid(stub):
    """Slices, memory and what the profile's name adds; slots without a device are skipped."""
    profiles = {
        0: "1g.5gb",
        2: "1g.5gb+me",
        3: "3g.20gb",
        4: "1c.3g.20gb",
        5: "1g.5gb-me",
        6: "1g.5gb+me.all",
        7: "1g.5gb+gfx",
        8: "3g.20gb+gfx",
    }
    stub.gpu(0, mig=1, slots=9).gpu(1, mig=0)
    for slot, profile in profiles.items():
        stub.mig(0, slot, profile)
    first, second = facts(stub.write())["gpus"]
    assert (first["mig_mode"], second) == (True, gpu(1, mig_mode=False))
    suffixes = {0: [], 2: ["+me"], 3: [], 4: [], 5: ["-me"], 6: ["+me.all"], 7: ["+gfx"], 8: ["+gfx"]}
    slices = {3: (3, 3), 4: (3, 1), 8: (3, 3)}
    own_ids = {0: 19, 2: 12, 3: 17, 4: 17, 5: 6, 6: 4, 7: 9, 8: 2}
    assert first["mig_devices"] == [
        {
            "index": slot, "uuid": mig_uuid(0, slot), "gpu_instance": 7 + slot, "compute_instance": 0,
            "gpu_slices": slices.get(slot, (1, 1))[0], "compute_slices": slices.get(slot, (1, 1))[1],
            "memory_mebibytes": 19968 if slot in slices else 4864, "profile_suffixes": suffixes[slot],
            "profile_sizes": profile.partition("gb")[0] + "gb", "multiprocessors": 0,
            "engines": dict.fromkeys(("copy", "decoder", "encoder", "jpeg", "ofa"), 0),
            "profile_id": own_ids[slot], "placement_start": slot % 7, "placement_size": 4 if slot in slices else 1,
        }
        for slot, profile in profiles.items()
    ]  # fmt: skip


@pytest.mark.parametrize("function", ["nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"])
def test_without_the_right_to_see_gpu_instances_the_name_tells_the_profile(stub, function):
    """NVML may refuse its instances to who has no MIG monitor capability; the names of the devices tell as much."""
    stub.gpu(0, mig=1).mig(0, 0, "1g.5gb+me").say("fail", function, 4).write()
    told = facts(stub)
    [part] = told["gpus"][0]["mig_devices"]
    assert (part["profile_suffixes"], told["problems"]) == (["+me"], [])
    unknown = ("profile_id", "placement_start", "placement_size")
    assert [part[fact] for fact in unknown] == [None, None, None]


def test_the_memory_of_a_gpu_that_may_not_be_asked_for_is_unknown_and_no_problem(stub):
    """M1: without the MIG monitor capability NVML refuses it; a rule by memory does without it."""
    stub.gpu(0, mig=1).mig(0, 0, "1g.5gb+me").say("fail", "nvmlDeviceGetMemoryInfo", 4).write()
    told = facts(stub)
    assert (told["gpus"][0]["memory_bytes"], told["problems"]) == (None, [])
    assert told["gpus"][0]["mig_devices"][0]["profile_sizes"] == "1g.5gb"


def test_nvlinks_to_gpus_and_to_switches_are_told_apart(stub):
    """N4: four links to another GPU, and six to a switch."""
    stub.gpu(0).gpu(1).links(0, 0, 4, type=0, pci=address(1)).links(1, 2, 4, type=0, pci=address(0))
    stub.links(0, 6, 6, type=2, pci="0000:c0:00.0").write()
    told = facts(stub)
    assert told["gpus"] == [gpu(0, nvlinks={address(1): 4}, switch_links=6), gpu(1, nvlinks={address(0): 4})]
    assert told["problems"] == []


LINKS_OF_AN_H100 = """
    Link 0: Remote Device 00000000:07:00.0: Link 46
    Link 1: Remote Device 00000000:07:00.0: Link 47
    Link 2: Remote Device 00000000:06:00.0: Link 2
    Link 3: Remote Device 00000000:06:00.0: Link 3
    Link 8: Remote Device 00000000:05:00.0: Link 46
    Link 12: Remote Device 00000000:08:00.0: Link 34
    Link 17: Remote Device 00000000:08:00.0: Link 39
"""
"""GPU 0 in the output of `nvidia-smi nvlink -R` in github.com/NVIDIA/nccl issue 1182, without 11 of its 18 links."""


@pytest.mark.parametrize("tells_type", [True, False])
def test_the_switch_and_its_port_at_the_other_end_of_each_link_are_told(stub, tells_type):
    """As nvidia-smi tells them, which asks the same; also by a driver that does not tell what is at the other end."""
    ends = re.findall(r"Link (\d+): Remote Device 0000(\S+): Link (\d+)", LINKS_OF_AN_H100)
    stub.gpu(0)
    for link, switch, port in ends:
        stub.say("link", gpu=0, link=link, type=2, pci=f"0000{switch}").field(0, 146, int(port), link=int(link))
    if not tells_type:
        stub.say("fail", "nvmlDeviceGetNvLinkRemoteDeviceType", 3)
    stub.write()
    told = facts(stub)
    expected = {link: f"{switch}/{port}" for link, switch, port in ends}
    assert told["gpus"] == [gpu(0, switch_links=7, switch_ports=expected)]
    assert expected["17"] == "0000:08:00.0/39"


@pytest.mark.parametrize("lacks", ["nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetFieldValues"])
def test_a_link_to_a_switch_that_has_no_address_or_no_number_there_counts_all_the_same(stub, lacks):
    """The switches of a GB200 are no PCI functions of its host: no failure."""
    stub.gpu(0).links(0, 0, 18, type=2, pci="0000:07:00.0").say("fail", lacks, 3).write()
    told = facts(stub)
    assert (told["gpus"], told["problems"]) == ([gpu(0, switch_links=18)], [])


def test_where_a_link_leads_is_still_known_when_it_is_down(stub):
    """The fatal SXid that takes it down may be read after it: only the next boot, or another GPU there, ends that."""
    stub.gpu(0).say("link", gpu=0, link=3, type=2, pci="0000:07:00.0").field(0, 146, 41, link=3).write()
    before = session.Answer().begun({"boot_id": "1"}).succeeded(facts(stub))
    stub.forget("link").write()
    for asking, expected in [({"boot_id": "1"}, {"3": "0000:07:00.0/41"}), ({"boot_id": "2"}, {})]:
        after = before.begun(asking).succeeded(facts(stub))
        assert [one["switch_ports"] for one in after.facts["gpus"]] == [expected]
    stub.forget("gpu").gpu(0, uuid="GPU-other").write()
    after = before.begun({"boot_id": "1"}).succeeded(facts(stub))
    assert [one["switch_ports"] for one in after.facts["gpus"]] == [{}]


def test_nvlinks_to_a_processor_are_no_links_to_a_gpu(stub):
    """An IBM processor at the other end (type 1)."""
    stub.gpu(0).links(0, 0, 3, type=1, pci="0004:04:00.0", vendor="1014").write()
    assert facts(stub)["gpus"] == [gpu(0)]


def test_one_lost_gpu_costs_the_others_nothing(stub):
    """N18: it is listed as far as it answers, with one line about it; the others are whole."""
    stub.gpu(0).gpu(1).gpu(2)
    for function in ("UUID", "MinorNumber", "Name", "MemoryInfo", "CudaComputeCapability", "MigMode", "NvLinkState"):
        stub.say("fail", f"nvmlDeviceGet{function}", 15, gpu=1)
    told = facts(stub.write())
    lost = gpu(1) | dict.fromkeys(["uuid", "minor", "model", "memory_bytes", "compute_capability"])
    assert told["gpus"] == [gpu(0), lost, gpu(2)]
    assert told["problems"] == [f"GPU 1 ({address(1)}): nvmlDeviceGetMemoryInfo: GPU is lost"]


def test_a_gpu_that_nvml_gives_no_handle_of_is_left_out_with_a_word(stub):
    """N18 again: the call by which everything begins fails for one GPU."""
    stub.gpu(0).gpu(1).say("fail", "nvmlDeviceGetHandleByIndex_v2", 15, gpu=0).write()
    told = facts(stub)
    assert told["gpus"] == [gpu(1)]
    assert told["problems"] == ["GPU 0: nvmlDeviceGetHandleByIndex_v2: GPU is lost"]


def test_each_lost_gpu_is_told_of(stub):
    """Twelve, whose numbers begin alike."""
    for number in range(12):
        stub.gpu(number)
    stub.say("fail", "nvmlDeviceGetHandleByIndex_v2", 15, gpu=11).say("fail", "nvmlDeviceGetPciInfo_v3", 15, gpu=1)
    told = facts(stub.write())
    assert told["problems"] == [
        "GPU 11: nvmlDeviceGetHandleByIndex_v2: GPU is lost",
        "GPU 1: nvmlDeviceGetPciInfo_v3: GPU is lost",
    ]
    assert [one["index"] for one in told["gpus"]] == [*range(11)]


def test_one_fact_that_cannot_be_told_leaves_the_others(stub):
    """A UUID that cannot be read; memory that this GPU does not have of its own is no problem at all."""
    stub.gpu(0).say("fail", "nvmlDeviceGetUUID", 999).say("fail", "nvmlDeviceGetMemoryInfo", 3).write()
    told = facts(stub)
    assert told["gpus"] == [gpu(0, uuid=None, memory_bytes=None)]
    assert told["problems"] == [f"GPU 0 ({address(0)}): nvmlDeviceGetUUID: Unknown Error"]


def test_an_old_driver_tells_what_it_can(libraries, stub):
    """Functions of early versions alone: no MIG, and the other end of an NVLink is known by its address."""
    old = Stub(libraries("OLD_DRIVER"), stub.file, driver="418.87.00")
    old.gpu(0).gpu(1).links(0, 0, 2, pci=address(1)).links(0, 2, 1, pci="0000:c0:00.0")
    old.links(0, 3, 3, pci="0004:04:00.0", vendor="1014").write()
    lacking = {"architecture": None, "addressing_mode": None}
    assert facts(old) == {
        "driver_version": "418.87.00",
        "cuda_version": "13.1",
        "gpus": [gpu(0, nvlinks={address(1): 2}, switch_links=1, **lacking), gpu(1, **lacking)],
        "problems": [],
    }


def test_brand_architecture_and_addressing_mode_have_the_words_of_nvidias_drivers(stub):
    """A number that is newer than the words, and what a GPU or driver does not support, is unknown and no problem."""
    stub.gpu(0, brand=15, architecture=8, addressing=1).gpu(1, brand=0, architecture=0xFFFFFFFF, addressing=2)
    stub.gpu(2, brand=99, architecture=14, addressing=9).gpu(3)
    for function, code in (("Brand", 3), ("Architecture", 13), ("AddressingMode", 25)):
        stub.say("fail", f"nvmlDeviceGet{function}", code, gpu=3)
    told = facts(stub.write())
    assert [(one["brand"], one["architecture"], one["addressing_mode"]) for one in told["gpus"]] == [
        ("GeForceRTX", "Ada Lovelace", "HMM"),
        ("Unknown", "Unknown", "ATS"),
        (None, None, None),
        (None, None, None),
    ]
    assert told["problems"] == []


def test_a_library_of_another_version_than_the_driver_is_named(stub, tmp_path):
    """What unattended upgrades leave behind: the version of the library, and the cure."""
    root = stub.say("fail", "nvmlInit_v2", 18).write().put_below(tmp_path / "driver")
    assert problem(stub, driver_root=root) == (
        "driver/library version mismatch — the library 590.48.01 is of another version than the loaded driver "
        "— reload the nvidia kernel modules or reboot"
    )


@pytest.mark.parametrize("by_name", [False, True])
def test_a_container_with_the_library_of_an_older_driver_must_be_started_again(stub, tmp_path, monkeypatch, by_name):
    """Defect: it was told to reload the modules or reboot. NVIDIA's runtime binds the library in at its start."""
    stub.driver = "580.105.08"
    root = stub.say("fail", "nvmlInit_v2", 18).write().put_below(tmp_path / "driver")
    place = {"driver_root": root} if not by_name else {"library": "libnvidia-ml.so.1"}
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stub.installed[0].parent))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    outdated = answer(stub, **place, driver_version="590.48.01")
    assert outdated["problem"] == (
        "driver/library version mismatch — the driver 590.48.01 is newer than the library 580.105.08 that this"
        " container got when it started — restart this pod"
    )
    assert outdated["newer_driver"] == ["590.48.01", "580.105.08"]

    other_way = answer(stub, **place, driver_version="580.95.05")
    assert other_way["problem"].endswith(" — reload the nvidia kernel modules or reboot")
    assert other_way["newer_driver"] is None


def test_on_a_host_a_library_is_that_of_the_packages(monkeypatch):
    """Whichever is newer: no restart of devherd changes it."""

    def refuse(*_):
        error = OSError("the library is of another version")
        error.library_version = "580.105.08"
        raise error

    monkeypatch.setattr(session, "nvml_facts", refuse)
    begun = session.Answer().begun({"driver_version": "590.48.01"})
    for is_in_container, problem in ((False, "the library is of another version"), (True, "restart this pod")):
        monkeypatch.setattr(session, "is_in_container", lambda is_in_container=is_in_container: is_in_container)
        assert session.ask(begun).problem.endswith(problem)


@pytest.mark.parametrize(("code", "said"), [(9, "the nvidia kernel driver is not loaded"), (999, "Unknown Error")])
def test_why_nvml_cannot_be_initialised_is_said_in_one_line(stub, code, said):
    """What, why and cure."""
    complaint = problem(stub.say("fail", "nvmlInit_v2", code).write())
    assert complaint.startswith("NVML cannot be initialised — ")
    assert said in complaint
    assert "\n" not in complaint


def test_a_missing_library_is_a_failure_without_a_problem(stub, tmp_path):
    """A driver that came without NVML is nothing to complain about."""
    for request in ({"driver_root": tmp_path}, {"library": tmp_path / "none"}, {"library": "libnone-ml.so.1"}):
        assert problem(stub, **request) is None


def test_a_broken_library_is_said_to_be_one(stub, tmp_path):
    """The loader's words."""
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_text("not a library, and long enough to look into: " + "x" * 4096)
    complaint = problem(stub, library=broken)
    assert "invalid ELF header" in complaint
    assert complaint.endswith("reinstall the NVIDIA driver libraries")


def test_a_crash_is_the_process_s_own(stub):
    """It ends by SIGSEGV, as whoever started it can see."""
    done = probe(stub.gpu(0).say("crash", "nvmlDeviceGetName").write())
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "")


def test_a_gpu_that_has_joined_a_fabric_says_which_clique_of_which_cluster(stub):
    """One that is still joining, one that could not and one without a cluster say none."""
    cluster = "8f5c1e6a9d3b4c53a3f50f6b1c2d3e4f"
    for number in range(6):
        stub.gpu(number)
    stub.say("fabric", gpu=0, state=3, status=0, summary=1, cluster=cluster, clique=32766)
    for gpu, version in ((4, 2), (5, 1)):  # drivers that know no newer one
        stub.say("fabric", gpu=gpu, state=3, status=0, cluster=cluster, clique=7, version=version)
    stub.say("fabric", gpu=1, state=2, status=0, summary=1, cluster=cluster, clique=1)
    stub.say("fabric", gpu=2, state=3, status=6, summary=1, cluster=cluster, clique=1)
    stub.say("fabric", gpu=3, state=3, status=0, summary=1, clique=1)
    told = facts(stub.write())
    uuid = "8f5c1e6a-9d3b-4c53-a3f5-0f6b1c2d3e4f"
    expected = [f"{uuid}.32766", None, None, None, f"{uuid}.7", f"{uuid}.7"]
    assert [gpu["fabric_clique"] for gpu in told["gpus"]] == expected
    assert told["problems"] == []
