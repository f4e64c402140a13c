"""The log while the kubelet is away: one line, not one for each resource."""

import pytest

SIMULATED = {"simulated": [{"name": f"example.com/r{number}", "count": 1} for number in range(5)]}


@pytest.mark.parametrize(
    "registration",
    [
        pytest.param(way, marks=pytest.mark.on("generic", SIMULATED | {"registration": way}))
        for way in ("kubelet_socket", "plugins_registry")
    ],
)
async def test_a_kubelet_that_goes_and_comes_is_two_lines_and_not_two_for_each_resource(testbed, registration):
    """By either way of registration. With debug, each resource says so for itself."""
    del registration  # the mark configures it
    names = [resource["name"] for resource in SIMULATED["simulated"]]
    for name in names:
        await testbed.kubelet.until_allocatable(name, 1, within=30)
    await testbed.kubelet.stop(clean=False)
    await testbed.until(lambda: "the kubelet is away: " in testbed.log, "it is said that the kubelet is away")
    await testbed.kubelet.start()
    for name in names:
        await testbed.kubelet.until_allocatable(name, 1, within=30)
    await testbed.until(lambda: "the kubelet is back after " in testbed.log, "it is said that the kubelet is back")

    lines = testbed.log.split("\n")
    away = [line for line in lines if "the kubelet is away: " in line]
    assert len(away) == 1
    assert "kubelet.sock refuses connections; resources wait for it" in away[0]
    assert sum("the kubelet is back after " in line for line in lines) == 1
    assert [line for line in lines if "waiting for the kubelet" in line or "closed the stream" in line] == []


@pytest.mark.on("generic", SIMULATED)
async def test_a_kubelet_that_restarts_at_once_is_no_warning_for_each_resource(testbed):
    """Each loses its stream, and finds another kubelet a moment later: that is one line, and no complaint."""
    names = [resource["name"] for resource in SIMULATED["simulated"]]
    for name in names:
        await testbed.kubelet.until_allocatable(name, 1, within=30)
    mark = testbed.kubelet.events.mark()
    await testbed.kubelet.restart()
    for name in names:
        await testbed.kubelet.until_registered(name, since=mark, within=30)
    await testbed.until(
        lambda: "the kubelet was restarted; " in testbed.log or "the kubelet is back after " in testbed.log,
        "it is said that the kubelet was restarted",
    )

    lines = testbed.log.split("\n")
    assert [line for line in lines if "WARNING" in line and "resource:" in line] == []
