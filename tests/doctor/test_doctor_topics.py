"""What the doctor says of each topic: of hosts as they may be, without any of them."""

import asyncio
import errno
import os
import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import scratch
from certificates import Authority
from not_tested import not_tested

from devherd.config.web import Tls, Web
from devherd.doctor import environment, examination, kubelet, notifications, pids, running, runtime, web
from devherd.doctor.environment import Environment
from devherd.doctor.kubelet import KubeletDirectory, Refusal
from devherd.doctor.line import Level
from devherd.doctor.notifications import Notifications
from devherd.doctor.pids import Pids
from devherd.doctor.running import CheckedDirectory, Instance
from devherd.doctor.runtime import Runtime
from devherd.doctor.web import Certificate, WebFiles
from devherd.instance.read import InstanceState
from devherd.kubelet import cures
from devherd.kubelet.endpoint import MAX_PATH_BYTES
from devherd.proto.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from devherd.proto.spool_pb2 import Address, Child, Configuration, Device, Edits, Offer, Problem
from devherd.settings import Settings
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed


def troubles(lines) -> list[tuple[str, str]]:
    """Level and text of each line that is not ok; whatever is not has a cure."""
    lines = list(lines)
    assert all(line.cure for line in lines if line.level is not Level.OK)
    assert not any(line.cure for line in lines if line.level is Level.OK)
    return [(line.level.value, line.what) for line in lines if line.level is not Level.OK]


HOST = {
    "is_container": False,
    "user": 0,
    "kernel": "6.8.0-45-generic",
    "python": "3.12.1",
    "capabilities": 0x1FF,
    "sandbox_lacks": (),
    "now": 1.8e9,
    "is_synchronised": True,
}


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ({}, []),
        ({"user": 1000}, [("warning", "runs as user 1000: `devherd run` needs root")]),
        ({"kernel": "5.4.0-1"}, [("problem", "Linux 5.4.0-1 is older than 5.6")]),
        ({"kernel": "5.15.0"}, []),
        ({"sandbox_lacks": ("files",)}, [("warning", "children are not fully confined: Landlock lacks files")]),
        ({"now": 86_400.0}, [("problem", "the clock shows 1970-01-02")]),
        ({"is_synchronised": False}, [("warning", "the clock is not synchronised")]),
        ({"is_synchronised": None}, []),
    ],
)
def test_environment(otherwise, said):
    """Rights, kernel, sandbox and clock."""
    assert troubles(environment.judge(Environment(**{**HOST, **otherwise}))) == said


def test_this_host_can_be_read():
    """Whatever it is."""
    assert [line.topic for line in environment.judge(environment.look())]
    assert [line.topic for line in notifications.judge(notifications.look(Path("/")))]


ALL_HEARD = {
    "inotify": "",
    "inotify_instances": 8192,
    "uevents": "",
    "is_user_namespace": False,
    "kernel_log": "",
    "restricts_kernel_log": False,
    "hidden_interfaces": (),
}


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ({}, []),
        ({"inotify": "Too many open files"}, [("problem", "inotify cannot be used: Too many open files")]),
        ({"inotify_instances": 64}, [("warning", "fs.inotify.max_user_instances is 64")]),
        (
            {"uevents": "Permission denied"},
            [("warning", "the kernel's device events cannot be received: Permission denied")],
        ),
        ({"is_user_namespace": True}, [("warning", "a user namespace receives no device events")]),
        (
            {"kernel_log": "/dev/kmsg: Operation not permitted", "restricts_kernel_log": True},
            [
                (
                    "warning",
                    "the kernel log cannot be read: /dev/kmsg: Operation not permitted (kernel.dmesg_restrict is 1)",
                )
            ],
        ),
    ],
)
def test_notifications(otherwise, said):
    """What is not heard is looked for: only a host without inotify is a problem."""
    assert troubles(notifications.judge(Notifications(**{**ALL_HEARD, **otherwise}))) == said


def test_devlink_is_blind_where_the_cards_interfaces_are_in_another_network_namespace():
    """Said where there are such cards, with the manifest that helps; elsewhere nobody misses it."""
    hidden = Notifications(**{**ALL_HEARD, "hidden_interfaces": ("ens1", "ens2", "ens3", "ens4")})
    [(level, what)] = troubles(notifications.judge(hidden, has_network_cards=True))
    assert (level, what.partition(": ")[2]) == (
        "warning",
        "ens1, ens2, ens3 … of the host in another network namespace",
    )
    [line] = [one for one in notifications.judge(hidden, has_network_cards=True) if one.what == what]
    assert "host-network" in line.cure
    assert troubles(notifications.judge(hidden)) == []
    assert troubles(notifications.judge(Notifications(**ALL_HEARD), has_network_cards=True)) == []


def test_interfaces_of_cards_that_this_process_has_not_are_in_another_namespace(tmp_path):
    """Those without a card, bridges and tunnels, are of no matter; a host without sysfs hides none."""
    net = tmp_path / "sys/class/net"
    for name, has_card in (("lo", False), ("ens1", True), ("docker0", False)):
        (net / name).mkdir(parents=True)
        if has_card:
            (net / name / "device").symlink_to("../../../devices")
    (tmp_path / "sys/devices").mkdir()
    assert notifications.look(tmp_path).hidden_interfaces == ("ens1",)
    assert notifications.look(tmp_path / "nothing").hidden_interfaces == ()


def kubelet_directory(settings, **otherwise) -> KubeletDirectory:
    return KubeletDirectory(
        **{"settings": settings, "refusal": None, "kubelet": None, "pod_resources": None, **otherwise}
    )


def test_a_kubelet_that_is_away_is_a_problem_unless_it_finds_plugins_by_itself():
    """Then it need not run yet."""
    away = "/k/device-plugins/kubelet.sock refuses connections"
    by_call, by_finding = Settings(), Settings(registration="plugins_registry")

    refused = Refusal(away, "start it")
    assert troubles(kubelet.judge(kubelet_directory(by_call, kubelet=refused), ())) == [("problem", away)]
    assert troubles(kubelet.judge(kubelet_directory(by_finding, kubelet=refused), ())) == []


@pytest.mark.parametrize(
    ("other", "name", "level"),
    [
        ("nvidia-gpu.sock", "nvidia.com/gpu", "problem"),
        ("amd.com_gpu", "amd.com/gpu", "problem"),
        ("gpu.intel.com-i915.sock", "gpu.intel.com/i915", "problem"),
        ("gpu.intel.com-i915.sock", "gpu.intel.com/xe", "warning"),
        ("gdp-abc.sock", "nvidia.com/gpu", "warning"),
    ],
)
def test_another_plugin_of_the_same_resource_is_a_problem_and_of_an_unknown_one_a_warning(other, name, level):
    """The two would displace each other."""
    [(said, what)] = troubles(kubelet.judge(kubelet_directory(Settings(), others=(other,)), {name, "a.b/c"}))

    assert said == level
    assert other in what


def test_a_kubelet_that_answers_a_part_only_is_a_warning():
    """One before v1 of PodResources, or one that was built without."""
    found = kubelet_directory(Settings(), allocatable=Refusal("the kubelet does not have version v1 of it", "update"))
    what = "PodResources does not list allocatable devices: the kubelet does not have version v1 of it"
    assert troubles(kubelet.judge(found, ())) == [("warning", what)]


def test_which_of_its_questions_a_kubelet_answers_is_asked():
    """By real calls: an empty server knows none of them."""
    settings = Settings(kubelet_dir=scratch.directory())
    settings.pod_resources_socket.parent.mkdir()
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{settings.pod_resources_socket}")
    server.start()
    try:
        found = kubelet.look(settings)
    finally:
        server.stop(None).wait()
        shutil.rmtree(settings.kubelet_dir)
    newer = Refusal("the kubelet does not have version v1 of it", "use Kubernetes 1.20 or newer, which has version v1")
    assert (found.pod_resources, found.allocatable) == (newer, None)


def test_sockets_of_others_are_those_on_which_somebody_listens(directory):
    """Dead ones stay behind, the kubelet's and devherd's own are no rivals."""
    settings = Settings(kubelet_dir=directory)
    settings.plugin_directory.mkdir()
    listening = []
    before = Path.cwd()
    os.chdir(settings.plugin_directory)  # socket paths are short
    try:
        for name in ("kubelet.sock", "devherd-0badcafe-1.sock", "nvidia-gpu.sock", "dead.sock"):
            server = socket.socket(socket.AF_UNIX)
            server.bind(name)
            if name != "dead.sock":
                server.listen()
            listening.append(server)
    finally:
        os.chdir(before)
    try:
        found = kubelet.look(settings)
    finally:
        for server in listening:
            server.close()

    assert found.others == ("nvidia-gpu.sock",)
    assert (found.refusal, found.kubelet) == (None, None)
    assert "pod-resources/kubelet.sock does not exist" in found.pod_resources.why
    assert not list(settings.plugin_directory.glob(".*")), "what was tried is removed"


def test_a_directory_that_is_missing_is_a_problem(directory):
    """As in a pod without the mount."""
    lines = troubles(kubelet.judge(kubelet.look(Settings(kubelet_dir=directory)), ()))

    assert ("problem", f"{directory}/device-plugins cannot be used: it does not exist") in lines


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


def test_a_directory_whose_path_is_too_long_for_a_resources_socket_has_its_own_cure(directory):
    """Defect: "start the kubelet" was the cure, whatever the error."""
    long = directory / ("x" * (MAX_PATH_BYTES - len(str(directory)) - 30))
    (long / "device-plugins").mkdir(parents=True)
    refusal = kubelet.look(Settings(kubelet_dir=long)).refusal

    assert (refusal.why, refusal.cure.partition(":")[0]) == (
        "File name too long",
        "name a shorter directory, such as a link to it",
    )


@pytest.mark.parametrize(
    ("number", "is_in_pod", "cure"),
    [
        (errno.ENOENT, False, "name the kubelet's --root-dir with --kubelet-root-dir"),
        (errno.ENOENT, True, "give the kubelet's --root-dir as the chart's `kubeletDir`"),
        (errno.ECONNREFUSED, True, "start the kubelet: nobody listens at the socket"),
        (errno.EACCES, False, "a security module refuses it"),
        (errno.EACCES, True, "a security module refuses it"),
        (errno.ENAMETOOLONG, False, "name a shorter directory"),
        (errno.EMFILE, False, "raise the limit of open files"),
    ],
)
def test_the_cure_of_a_socket_follows_from_the_error(monkeypatch, number, is_in_pod, cure):
    """Defect: "mount the directory in the pod" was said on bare metal, and of a socket that SELinux refuses."""
    monkeypatch.setattr(cures, "is_in_pod", lambda: is_in_pod)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cures.of_pod_resources(OSError(number, os.strerror(number)), Settings()).startswith(cure)


def test_what_owner_and_mode_refuse_to_others_root_may():
    """Only then a security module is at work."""
    refused = OSError(errno.EACCES, "Permission denied")
    said = cures.of_registration(refused)
    assert said == ("run as root" if os.geteuid() else said)
    assert said.startswith(("run as root", "a security module refuses it"))


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "look for another program that asks it all the time"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "the kubelet hangs or is overloaded"),
        (grpc.StatusCode.UNIMPLEMENTED, "use Kubernetes 1.20 or newer"),
        (grpc.StatusCode.INTERNAL, "look into the kubelet's log"),
    ],
)
def test_the_cure_of_an_answer_follows_from_its_status_code(directory, code, cure):
    """Defect: "mount the directory in the pod" was the cure of a kubelet that limits its callers, or hangs."""

    class Refusing(PodResourcesListerServicer):
        def List(self, request, context):
            context.abort(code, "no")

    settings = Settings(kubelet_dir=directory)
    settings.pod_resources_socket.parent.mkdir()
    server = grpc.server(ThreadPoolExecutor(1))
    add_PodResourcesListerServicer_to_server(Refusing(), server)
    server.add_insecure_port(f"unix:{settings.pod_resources_socket}")
    server.start()
    try:
        found = kubelet.look(settings)
    finally:
        server.stop(None).wait()
    assert found.pod_resources.cure.startswith(cure)
    [line] = [line for line in kubelet.judge(found, ()) if line.what.startswith("PodResources does not answer")]
    assert line.level is Level.WARNING
    assert line.cure.endswith("; without it no holder of a device is shown")


CONTAINERD_1 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
CONTAINERD_2 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("etc/containerd/config.toml", f"{CONTAINERD_1}enable_cdi = true\n", []),
        ("etc/containerd/config.toml", f"{CONTAINERD_1}enable_cdi = false\n", ["problem"]),
        ("etc/containerd/config.toml", CONTAINERD_1, ["warning"]),
        ("etc/containerd/config.toml", "", ["warning"]),
        ("etc/containerd/config.toml", CONTAINERD_2, []),
        ("etc/containerd/config.toml", f"{CONTAINERD_2}enable_cdi = false\n", ["problem"]),
        ("etc/containerd/config.toml", f"{CONTAINERD_2}cdi_spec_dirs = ['/etc/cdi']\n", ["problem"]),
        ("etc/containerd/config.toml", f"{CONTAINERD_2}cdi_spec_dirs = ['/run/cdi']\n", []),
        ("var/lib/rancher/k3s/agent/etc/containerd/config.toml", CONTAINERD_2, []),
        ("etc/containerd/config.toml", "not [toml", ["warning"]),
        ("etc/containerd/config.toml", "plugins = 3", ["warning"]),
        ("etc/crio/crio.conf", "[crio.runtime]\n", []),
        ("etc/crio/crio.conf.d/10.conf", "[crio.runtime]\ncdi_spec_dirs = ['/opt/cdi']\n", ["problem"]),
        ("etc/nothing", "", ["warning"]),
    ],
)
def test_the_runtimes_configuration_says_whether_it_takes_cdi_devices(tmp_path, file, text, said):
    """Where any device needs that; a version's own default cannot be seen from the file."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    found = runtime.look(tmp_path)

    lines = troubles(runtime.judge(found, Path("/var/run/cdi"), uses_cdi=True))
    assert [level for level, _ in lines] == said
    assert troubles(runtime.judge(found, Path("/var/run/cdi"), uses_cdi=False)) == []


def test_a_card_without_its_driver_and_an_unhealthy_device_are_problems():
    """And a host without any device is a warning: it may well be right."""
    resource = Offer(name="a.b/c", devices=[Device(id="0", reasons=["xid"]), Device(id="1")])
    unloaded = Problem(vendor="nvidia", path="/sys/x", device="0000:01:00.0", error="no driver; load `nvidia`")

    assert troubles(examination.judge_devices([resource], [unloaded])) == [
        ("problem", "a.b/c: 0 is Unhealthy: xid"),
        ("problem", "nvidia: 0000:01:00.0: no driver; load `nvidia`"),
    ]
    assert troubles(examination.judge_devices([], [])) == [("warning", "no device was found")]
    noted = Problem(vendor="none", path="/sys/y", device="0000:00:0b.0", error="an accelerator driven by intel_vpu")
    [nothing, named] = examination.judge_devices([], [], [noted])
    assert (nothing.cure, named.level) == ("the following lines say why", Level.WARNING)
    assert named.what == "0000:00:0b.0: an accelerator driven by intel_vpu"
    assert examination.uses_cdi([Offer(devices=[Device(edits=Edits(cdi_devices=["a/b=c"]))])])
    assert not examination.uses_cdi([resource])


RUN, LASTING = Path("/run/devherd"), Path("/var/lib/devherd")


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ({}, []),
        (
            {"places": (CheckedDirectory(RUN, "--run-dir", 32 << 20, refusal="/run cannot be written"),)},
            ["/run/devherd cannot be used: /run cannot be written"],
        ),
        (
            {"places": (CheckedDirectory(RUN, "--run-dir", 32 << 20, room_bytes=3 << 20),)},
            ["/run/devherd has only 3 of the 32 MiB that may be needed"],
        ),
        (
            {
                "places": (
                    CheckedDirectory(RUN, "--run-dir", 32 << 20, room_bytes=32 << 20, room_files=100),
                    CheckedDirectory(LASTING, "--state-dir", 1 << 20, room_bytes=1 << 20, room_files=7),
                )
            },
            ["/var/lib/devherd has room for 7 files only"],
        ),
        ({"taken": ("127.0.0.1:9478",)}, ["another program listens on 127.0.0.1:9478"]),
        ({"taken": ("127.0.0.1:9478",), "is_running": True}, []),
    ],
)
def test_what_a_start_would_need(otherwise, said):
    """A port is taken by the instance itself where one runs."""
    found = Instance(**{"settings": Settings(), "is_running": False, **otherwise})
    assert [what for _, what in troubles(running.judge(found))] == said


def test_the_directory_for_what_outlives_a_boot_is_examined_where_there_is_one(tmp_path):
    """Cordons go there; a file in its place, or above it, is none."""
    (tmp_path / "file").touch()
    settings = Settings(run_dir=tmp_path / "run", state_dir=tmp_path / "file/state")
    [run, lasting] = running.look(settings).places
    assert (run.path, run.option, run.refusal) == (tmp_path / "run", "--run-dir", "")
    assert run.room_bytes > 0
    assert (lasting.option, lasting.refusal) == ("--state-dir", f"{tmp_path}/file is not a directory")
    assert len(running.look(Settings(run_dir=tmp_path / "run")).places) == 1


UNSHARED = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture
def bed():
    """A node whose labels go to a file; its path is short enough for sockets."""
    tried = subprocess.run([*UNSHARED, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        not_tested(tried.stderr)
    path = scratch.directory()
    yield Testbed(path, preset("fpga-opae-2"), {"node_labels": {"write": "feature_file"}})
    shutil.rmtree(path)


def judged(bed):
    """What is said of the instance that runs."""
    return running.judge(running.look(bed.settings))


async def test_what_the_mounts_of_the_running_instance_forbid_is_named(bed):
    """Defect: it looked with its own mounts, in which everything can be written; a unit's sandbox is another matter."""
    kubelet, features = bed.settings.kubelet_dir, bed.node.root / "etc/kubernetes/node-feature-discovery/features.d"
    pod = bed.directory / "pod resources"
    features.mkdir(parents=True)
    pod.mkdir()
    made = f"""
        mount --bind {features} {features} && mount -o remount,ro,bind {features}
        mount --bind '{pod}' {kubelet}/pod-resources
        exec "$@"
    """
    bed.command = (*UNSHARED, "sh", "-ec", made, "sh", *bed.command)
    async with bed:
        await bed.until(bed.runs, "all processes run")
        forbidden = f"{features} is read-only for the instance that runs"
        await bed.until(lambda: [what for _, what in troubles(judged(bed))] == [forbidden], "all is registered")
        pod.rmdir()
        assert [what for _, what in troubles(judged(bed))] == [
            forbidden,
            f"{kubelet}/pod-resources was removed on the host; the instance that runs sees the old one",
        ]
        assert await asyncio.wait_for(bed.herd.wait(), 20) == 1
    assert f"devherd: removed on the host: {kubelet}/pod-resources — " in bed.log
    assert running.look(bed.settings).removed == ()


DAY = 86_400.0
CERTIFICATE = Certificate(Path("/c/tls.crt"), begins=1000 * DAY, ends=1090 * DAY)


@pytest.mark.parametrize(
    ("day", "said"),
    [
        (999, [("problem", "the certificate /c/tls.crt is valid from 1972-09-27 on")]),
        (1000, []),
        (1059, []),
        (1061, [("warning", "the certificate /c/tls.crt is valid until 1972-12-26, 29 d more")]),
        (1090, [("problem", "the certificate /c/tls.crt was valid until 1972-12-26")]),
    ],
)
def test_a_certificate_is_to_be_renewed_a_month_before_its_end(day, said):
    """Later there is nobody to talk to."""
    assert troubles(web.judge(WebFiles(now=day * DAY, certificates=(CERTIFICATE,)))) == said


def test_the_files_of_a_web_configuration_are_looked_at(tool, tmp_path):
    """Which others can read, and certificates as openssl makes them; one that is not the key's serves nobody."""
    authority = Authority(tool("openssl"), tmp_path / "c")
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    file = tmp_path / "web.yaml"
    file.touch(mode=0o600)
    key.chmod(0o640)
    guards = Web(file=file, tls=Tls(cert_file=certificate, key_file=key, client_ca_file=authority.certificate))

    ends = re.compile(r" is valid until \d{4}-\d\d-\d\d, 1 d 23 h more$")
    said = [(level, ends.sub("", what)) for level, what in troubles(web.judge(web.look(guards)))]
    assert said == [("warning", f"the certificate {each}") for each in (certificate, authority.certificate)]

    file.chmod(0o604)
    authority.sign("other", "IP:127.0.0.1")[1].replace(key)
    key.chmod(0o644)
    assert troubles(web.judge(web.look(guards))) == [
        ("warning", f"every user of this host can read {file}"),
        ("warning", f"every user of this host can read {key}"),
        ("problem", f"TCP is not served: {certificate}: key values mismatch"),
    ]
    assert list(web.judge(web.look(Web()))) == []


def test_a_running_instance_is_examined_too():
    """Programs that do not run, a refused configuration, an address not served, resources that are not registered."""
    herd = InstanceState(
        resources=[Offer(name="a.b/c", devices=[Device(id="0"), Device(id="1", reasons=["xid", "ecc"])])],
        children={"resource:a.b_c": Child(name="resource:a.b_c", state="STOPPED")},
        configuration=Configuration(refusal="bad key"),
        served=[Address(address="127.0.0.1:9478", refusal="Address already in use", cure="end the other")],
    )
    lines = troubles(running.judge(Instance(settings=Settings(), is_running=True, herd=herd)))

    assert lines[:3] == [
        ("problem", "the configuration was not reloaded, the old one stays: bad key"),
        ("problem", "not serving 127.0.0.1:9478: Address already in use"),
        ("problem", "resource:a.b_c is STOPPED"),
    ]
    assert (lines[3][0], lines[3][1].partition(": ")[0]) == ("problem", "a.b/c is not registered")
    assert lines[4:] == [("problem", "a.b/c: 1 is Unhealthy: xid, ecc")]


def test_resources_that_wait_for_a_kubelet_that_is_away_are_a_warning():
    """Defect: a node that served nothing counted no problem; the kubelet's own line says where it is away."""
    herd = InstanceState(resources=[Offer(name="a.b/c")])
    away = Instance(settings=Settings(), is_running=True, herd=herd, is_kubelet_away=True)
    there = replace(away, is_kubelet_away=False)

    said = "a.b/c is not registered: no status from its process yet"
    assert troubles(running.judge(away)) == [("warning", said)]
    assert troubles(running.judge(there)) == [("problem", said)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, []),
        (Pids(Path("/c"), 40, 512, 0), []),
        (Pids(Path("/c"), 40, 512, 7), []),
        (Pids(Path("/c"), 500, 512, 0), [("warning", "process ids: 500 of 512 in /c")]),
        (Pids(Path("/c"), 512, 512, 7), [("problem", "process ids: 512 of 512 in /c; 7 were refused since it exists")]),
    ],
)
def test_the_process_ids_of_the_pod_are_counted(found, said):
    """Defect: what had no thread was blamed on drivers, and no line said how many process ids there may be."""
    assert troubles(pids.judge(found)) == said


def test_the_tightest_limit_of_process_ids_is_that_of_any_cgroup_above(tmp_path):
    """A pod's own has none where the kubelet limits the pod above it; a container sees its own at the root."""
    [(controllers, path)] = [
        row.split(":")[1:]
        for row in Path("/proc/self/cgroup").read_text().splitlines()
        if ":pids:" in row or "::" in row
    ][:1]
    own = tmp_path / controllers / path.strip("/") / "a" if path == "/" else tmp_path / controllers / path.strip("/")
    root = tmp_path / controllers
    own.mkdir(parents=True, exist_ok=True)
    (root / "pids.current").write_text("90\n")
    (root / "pids.max").write_text("100\n")
    (root / "pids.events").write_text("max 3\n")
    assert pids.look(os.getpid(), tmp_path) == Pids(root, 90, 100, 3)
    (root / "pids.max").write_text("max\n")
    assert pids.look(os.getpid(), tmp_path) is None


def test_a_port_that_somebody_has_is_taken(tmp_path):
    """And none of a Unix socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        found = running.look(Settings(run_dir=tmp_path / "run", listen=f"{taken},unix:/x"))

    assert (found.taken, found.is_running, found.places[0].refusal) == ((taken,), False, "")


def test_an_unreadable_runtime_is_told_apart_from_one_that_is_off():
    """Its file may be another version's."""
    found = [Runtime(name="containerd", file=Path("/c"), error="bad")]
    assert troubles(runtime.judge(found, Path("/var/run/cdi"), uses_cdi=True)) == [
        ("warning", "containerd (/c) cannot be read: bad")
    ]
