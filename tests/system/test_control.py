"""devherd whole: what an operator does to it, with the tools an operator has."""

import asyncio
import json
import re

import pytest
from outside import devherd, get, supervisorctl

TYPES = {"simulated": [{"name": "example.com/a", "count": 2}, {"name": "example.com/b", "count": 1}]}


async def registered(stage, *names: str, since: int = 0) -> None:
    for name in names:
        await stage.kubelet.until_registered(name, since=since, within=30)
        await stage.kubelet.events.wait("list", name, since=since, within=30)


@pytest.mark.on("generic", TYPES)
async def test_the_real_supervisorctl_shows_and_controls_every_part(stage):
    """The whole system in `status`; any part stopped, started and restarted alone."""
    await registered(stage, "example.com/a", "example.com/b")

    await stage.until(lambda: all(child.state == "RUNNING" for child in stage.children().values()), "running")
    status = await supervisorctl(stage, "status")
    states = dict(re.findall(r"^(\S+)\s+([A-Z]+)", status, re.MULTILINE))
    assert states == dict.fromkeys(
        ["exporter", "scanner", "resource:example.com_a", "resource:example.com_b"], "RUNNING"
    )

    await supervisorctl(stage, "stop", "resource:example.com_a")
    assert stage.kubelet.allocatable("example.com/a") == 0
    assert "STOPPED" in await supervisorctl(stage, "status", "resource:example.com_a")
    mark = stage.kubelet.events.mark()
    await supervisorctl(stage, "start", "resource:example.com_a")
    await registered(stage, "example.com/a", since=mark)

    mark = stage.kubelet.events.mark()
    await supervisorctl(stage, "restart", "resource:*")
    await registered(stage, "example.com/a", "example.com/b", since=mark)
    assert stage.child_of("example.com/b").restarts["operator"] == 1


@pytest.mark.on("generic", TYPES)
async def test_devherd_ctl_is_supervisorctl_for_the_instance(stage):
    """No path to remember."""
    await registered(stage, "example.com/a")
    await stage.until(lambda: stage.children()["scanner"].state == "RUNNING", "the scanner runs")

    shown = devherd("ctl", "--run-dir", str(stage.settings.run_dir), "status", "scanner")

    assert shown.stdout.split()[:2] == ["scanner", "RUNNING"]


def allocated(inventory: str) -> list[dict[str, str]]:
    """Every holder of a device."""
    devices = [device for one in json.loads(inventory)["resources"] for device in one["devices"]]
    return [holder for device in devices for holder in device["allocated"]]


async def until_page(stage, path: str, condition) -> str:
    """The page, once it fulfils the condition."""
    for _ in range(400):
        status, body = await get(stage, path)
        if condition(status, body):
            return body
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path}: {status} {body}\n{stage.log}")


@pytest.mark.on("fpga-opae-2", {})
async def test_the_http_paths_tell_what_the_kubelet_was_told(stage):
    """Metrics, health, readiness and inventory of one and the same state, with who holds what."""
    names = ["fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"]
    await registered(stage, *names)
    await stage.kubelet.allocate(names[0], 1, pod="train")
    await until_page(stage, "/readyz", lambda status, _: status == 200)

    assert (await get(stage, "/healthz"))[0] == 200
    inventory = json.loads((await get(stage, "/api/v1/inventory"))[1])
    [device] = next(one for one in inventory["resources"] if one["name"] == names[0])["devices"]
    assert (device["id"], device["health"]) == ("intel-fpga-port.0", "Healthy")
    holder = {"namespace": "default", "pod": "train", "container": "main"}
    await until_page(stage, "/api/v1/inventory", lambda _, body: holder in allocated(body))
    metrics = (await get(stage, "/metrics"))[1]
    assert f'devherd_registered{{resource_name="{names[0]}"}} 1.0' in metrics
    assert f'devherd_allocations_total{{resource_name="{names[0]}"}} 1.0' in metrics
    assert re.search(r'devherd_device_allocated\{[^}]*pod="train"[^}]*\} 1.0', metrics)
    assert (await get(stage, "/nowhere"))[0] == 404


@pytest.mark.on("generic", TYPES)
async def test_readiness_goes_while_the_kubelet_is_away_and_health_stays(stage):
    """A missing kubelet is no reason to restart devherd."""
    await registered(stage, "example.com/a", "example.com/b")
    await until_page(stage, "/readyz", lambda status, _: status == 200)

    await stage.kubelet.stop()

    said = await until_page(stage, "/readyz", lambda status, _: status == 503)
    assert "example.com/a" in said
    assert (await get(stage, "/healthz"))[0] == 200


@pytest.mark.on("generic", TYPES)
async def test_a_reload_adds_and_removes_resources_and_leaves_the_others_alone(stage):
    """SIGHUP: good config touches only what changed, bad config nothing."""
    await registered(stage, "example.com/a", "example.com/b")
    await stage.until(lambda: stage.children()["scanner"].state == "RUNNING", "the scanner can be asked to reload")
    untouched = stage.child_of("example.com/a").pid
    mark = stage.kubelet.events.mark()

    stage.configure({"simulated": [{"name": "example.com/a", "count": 2}, {"name": "example.com/c", "count": 3}]})
    await supervisorctl(stage, "reload")
    await registered(stage, "example.com/c", since=mark)
    await stage.until(lambda: "resource:example.com_b" not in stage.children(), "b is gone")

    stage.configure({"simulatde": []})
    await supervisorctl(stage, "reload")
    await stage.until(lambda: "simulatde: unknown key" in stage.log, "the error is said")

    assert stage.kubelet.devices("example.com/b") == {}
    assert stage.kubelet.events.since(mark, resource="example.com/a") == []
    assert stage.child_of("example.com/a").pid == untouched
    metrics = (await get(stage, "/metrics"))[1]
    assert "devherd_config_reloads_total 2.0" in metrics
    assert "devherd_config_reload_failures_total 1.0" in metrics


@pytest.mark.on("generic", TYPES)
async def test_a_second_instance_is_refused_and_the_first_not_disturbed(stage):
    """Exit code 3, and one line that says who is there."""
    await registered(stage, "example.com/a", "example.com/b")
    mark = stage.kubelet.events.mark()
    common = ["--kubelet-dir", str(stage.settings.kubelet_dir), "--listen", ""]

    same_run_dir = devherd("run", "--run-dir", str(stage.settings.run_dir), *common)
    same_kubelet = devherd("run", "--run-dir", str(stage.directory / "other"), *common)

    for refused in (same_run_dir, same_kubelet):
        assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
        assert refused.stderr.startswith("devherd: ")
    assert stage.kubelet.events.since(mark) == []


@pytest.mark.on("generic", TYPES)
async def test_status_shows_the_instance_and_fails_where_there_is_none(stage):
    """`devherd status` reads the files; exit code 4 where nobody runs."""
    await registered(stage, "example.com/a", "example.com/b")
    await stage.until(lambda: all(child.state == "RUNNING" for child in stage.children().values()), "running")

    shown = json.loads(devherd("status", "--run-dir", str(stage.settings.run_dir), "--output", "json").stdout)
    nobody = devherd("status", "--run-dir", str(stage.directory / "nobody"))

    assert {one["name"]: one["registered"] for one in shown["resources"]} == {
        "example.com/a": True,
        "example.com/b": True,
    }
    assert (nobody.returncode, nobody.stderr.count("\n")) == (4, 1)
