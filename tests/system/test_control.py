"""devherd whole: what an operator does to it, with the tools an operator has."""

import json
import re

import pytest
from outside import devherd, get, supervisorctl, until_page, until_ready

TYPES = {"simulated": [{"name": "example.com/a", "count": 2}, {"name": "example.com/b", "count": 1}]}


async def registered(testbed, *names: str, since: int = 0) -> None:
    for name in names:
        await testbed.kubelet.until_registered(name, since=since, within=30)
        await testbed.kubelet.events.wait("list", name, since=since, within=30)


@pytest.mark.on("generic", TYPES)
async def test_the_real_supervisorctl_shows_and_controls_every_part(testbed):
    """The whole system in `status`; any part stopped, started and restarted alone."""
    await registered(testbed, "example.com/a", "example.com/b")

    await testbed.until(testbed.runs, "every child runs")
    status = await supervisorctl(testbed, "status")
    states = dict(re.findall(r"^(\S+)\s+([A-Z]+)", status, re.MULTILINE))
    assert states == dict.fromkeys(
        ["exporter", "scanner", "resource:example.com_a", "resource:example.com_b"], "RUNNING"
    )

    await supervisorctl(testbed, "stop", "resource:example.com_a")
    assert testbed.kubelet.allocatable("example.com/a") == 0
    assert "STOPPED" in await supervisorctl(testbed, "status", "resource:example.com_a")
    mark = testbed.kubelet.events.mark()
    await supervisorctl(testbed, "start", "resource:example.com_a")
    await registered(testbed, "example.com/a", since=mark)

    mark = testbed.kubelet.events.mark()
    await supervisorctl(testbed, "restart", "resource:*")
    await registered(testbed, "example.com/a", "example.com/b", since=mark)
    b = (await testbed.child_of("example.com/b")).name
    await testbed.until(lambda: testbed.children()[b].restarts["operator"] == 1, "the restart is counted")


@pytest.mark.on("generic", TYPES)
async def test_devherd_ctl_is_supervisorctl_for_the_instance(testbed):
    """No path to remember."""
    await registered(testbed, "example.com/a")
    await testbed.until(lambda: testbed.runs("scanner"), "the scanner runs")

    shown = devherd("ctl", "--run-dir", str(testbed.settings.run_dir), "status", "scanner")

    assert shown.stdout.split()[:2] == ["scanner", "RUNNING"]
    shown = devherd("ctl", "--run-dir", str(testbed.settings.run_dir), "status", "example.com/a")
    assert shown.stdout.split()[:1] == ["resource:example.com_a"]


def allocated(inventory: str) -> list[dict[str, str]]:
    """Every holder of a device."""
    devices = [device for one in json.loads(inventory)["resources"] for device in one["devices"]]
    return [holder for device in devices for holder in device["allocated"]]


@pytest.mark.on("fpga-opae-2", {})
async def test_the_http_paths_tell_what_the_kubelet_was_told(testbed):
    """Metrics, health, readiness and inventory of one and the same state, with who holds what."""
    names = ["fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"]
    await registered(testbed, *names)
    await testbed.kubelet.allocate(names[0], 1, pod="train")
    await until_ready(testbed)

    await until_page(testbed, "/healthz", lambda status, _: status == 200)
    inventory = json.loads((await get(testbed, "/api/v1/inventory"))[1])
    [device] = next(one for one in inventory["resources"] if one["name"] == names[0])["devices"]
    assert (device["id"], device["health"]) == ("intel-fpga-port.0", "Healthy")
    holder = {"namespace": "default", "pod": "train", "container": "main"}
    await until_page(testbed, "/api/v1/inventory", lambda _, body: holder in allocated(body))
    assert f'devherd_registered{{resource_name="{names[0]}"}} 1.0' in (await get(testbed, "/metrics"))[1]
    allocation = f'devherd_allocations_total{{resource_name="{names[0]}"}} 1.0'
    metrics = await until_page(testbed, "/metrics", lambda _, body: allocation in body)
    assert re.search(r'devherd_device_allocated\{[^}]*pod="train"[^}]*\} 1.0', metrics)
    assert (await get(testbed, "/nowhere"))[0] == 404


@pytest.mark.on("generic", TYPES)
async def test_readiness_goes_while_the_kubelet_is_away_and_health_stays(testbed):
    """A missing kubelet is no reason to restart devherd."""
    await registered(testbed, "example.com/a", "example.com/b")
    await until_ready(testbed)

    await testbed.kubelet.stop()

    for name in ("example.com/a", "example.com/b"):
        await until_page(testbed, "/readyz", lambda status, said, name=name: status == 503 and name in said)
    await until_page(testbed, "/healthz", lambda status, _: status == 200)


@pytest.mark.on("generic", TYPES)
async def test_a_reload_adds_and_removes_resources_and_leaves_the_others_alone(testbed):
    """SIGHUP: good config touches only what changed, bad config nothing."""
    await registered(testbed, "example.com/a", "example.com/b")
    await testbed.until(lambda: testbed.runs("scanner"), "the scanner can be asked to reload")
    untouched = (await testbed.child_of("example.com/a")).pid
    mark = testbed.kubelet.events.mark()

    testbed.configure({"simulated": [{"name": "example.com/a", "count": 2}, {"name": "example.com/c", "count": 3}]})
    await supervisorctl(testbed, "reload")
    await registered(testbed, "example.com/c", since=mark)
    await testbed.until(lambda: "resource:example.com_b" not in testbed.children(), "b is gone")

    testbed.configure({"simulatde": []})
    await supervisorctl(testbed, "reload")
    await testbed.until(lambda: "simulatde: unknown key" in testbed.log, "the error is said")

    assert testbed.kubelet.devices("example.com/b") == {}
    assert testbed.kubelet.events.since(mark, resource="example.com/a") == []
    assert (await testbed.child_of("example.com/a")).pid == untouched
    failed = "devherd_config_reload_failures_total 1.0"
    metrics = await until_page(testbed, "/metrics", lambda _, page: failed in page)
    assert "devherd_config_reloads_total 2.0" in metrics
    assert "devherd_config_last_reload_successful 0.0" in metrics
    said = "configuration not reloaded, the old one stays"
    assert said in (await until_page(testbed, "/", lambda status, _: status == 200))
    assert "simulatde: unknown key" in configuration(testbed)["refusal"]

    simulated = [{"name": "example.com/a", "count": 1}]
    rules = [{"match": {"vendor_id": "8086"}}, {"match": {"id": "nobody"}}]
    testbed.configure({"scan": {"period": "1s"}, "simulated": simulated, "resources": rules})
    await supervisorctl(testbed, "reload")
    await until_page(testbed, "/metrics", lambda _, page: "devherd_config_last_reload_successful 1.0" in page)
    doubt = "`8086` can never match — values look like `0x8086`, in full and lower case"
    warning = f"{testbed.settings.config_path}:1:120: resources[0].match.vendor_id: {doubt}"
    await testbed.until(lambda: warning in testbed.log, "it is said")
    idle = "resources[1]: matches no device of this node, which has"
    await testbed.until(lambda: idle in testbed.log, "a rule without a device is said")
    await until_page(testbed, "/metrics", lambda _, page: "devherd_config_warnings 2.0" in page)
    shown = configuration(testbed)
    assert shown.pop("loaded").endswith("Z")
    assert shown.pop("warnings")[0] == warning
    assert shown == {"source": str(testbed.settings.config_path), "refusal": None}
    await until_page(testbed, "/", lambda _, page: "2 configuration warnings" in page and idle in page)


def configuration(testbed):
    """What `devherd status` says of the configuration in force."""
    shown = devherd("status", "--run-dir", str(testbed.settings.run_dir), "--output", "json").stdout
    return json.loads(shown)["configuration"]


def counted(metrics: str, series: str) -> float:
    """The value of a series on /metrics; 0.0 where there is none."""
    return next((float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(f"{series} ")), 0.0)


@pytest.mark.on("generic", TYPES)
async def test_counters_go_on_over_a_restart_of_devherd(testbed):
    """An upgrade keeps the run directory, and in it what was counted; what died in it is counted anew."""
    registrations = 'devherd_registrations_total{resource_name="example.com/a"}'
    restarts = 'devherd_child_restarts_total{cause="signal",child="exporter"}'
    scans = 'devherd_scans_total{vendor="simulated"}'
    await registered(testbed, "example.com/a", "example.com/b")
    await testbed.child("exporter")
    assert await supervisorctl(testbed, "signal", "KILL", "exporter") == "exporter: signalled\n"
    before = await until_page(
        testbed, "/metrics", lambda _, body: counted(body, restarts) == counted(body, registrations) == 1
    )

    await testbed.stop_herd()
    mark = testbed.kubelet.events.mark()
    await testbed.start_herd()
    await registered(testbed, "example.com/a", "example.com/b", since=mark)

    after = await until_page(testbed, "/metrics", lambda _, body: counted(body, registrations) == 2)
    assert counted(after, restarts) == 0
    assert counted(after, scans) > counted(before, scans) > 0


@pytest.mark.on("generic", TYPES)
async def test_a_second_instance_is_refused_and_the_first_not_disturbed(testbed):
    """Exit code 3, and one line that says who is there."""
    await registered(testbed, "example.com/a", "example.com/b")
    mark = testbed.kubelet.events.mark()
    common = ["--kubelet-dir", str(testbed.settings.kubelet_dir), "--listen", ""]

    same_run_dir = devherd("run", "--run-dir", str(testbed.settings.run_dir), *common)
    same_kubelet = devherd("run", "--run-dir", str(testbed.directory / "other"), *common)

    for refused in (same_run_dir, same_kubelet):
        assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
        assert refused.stderr.startswith("devherd: ")
    assert testbed.kubelet.events.since(mark) == []


@pytest.mark.on("generic", TYPES)
async def test_status_shows_the_instance_and_fails_where_there_is_none(testbed):
    """`devherd status` reads the files; exit code 4 where nobody runs."""
    await registered(testbed, "example.com/a", "example.com/b")
    await testbed.until(testbed.runs, "every child runs")

    await until_ready(testbed)
    shown = json.loads(devherd("status", "--run-dir", str(testbed.settings.run_dir), "--output", "json").stdout)
    nobody = devherd("status", "--run-dir", str(testbed.directory / "nobody"))

    assert {one["name"]: one["registered"] for one in shown["resources"]} == {
        "example.com/a": True,
        "example.com/b": True,
    }
    assert (nobody.returncode, nobody.stderr.count("\n")) == (4, 1)
