"""`devherd sim kubelet check`: two plugins of one resource, a second Register, and what became of a lost plugin."""

import grpc
import pytest
from sim_kubelet import sim_kubelet
from small_plugin import RESOURCE, SmallPlugin, device, running
from test_kubelet_check import GoodPlugin, found

from devherd.errors import DevherdError
from devherd_sim.kubelet import connections, reports

both_rules = pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])


@both_rules
async def test_two_plugins_of_one_resource_are_found(kubelet_dir, kubernetes):
    """Both have ListAndWatch open."""
    async with running(kubelet_dir, kubernetes=kubernetes) as kubelet:
        older = await GoodPlugin(kubelet, "a", endpoint="older.sock").up()
        newer = await GoodPlugin(kubelet, "a", endpoint="newer.sock").up()
        said = "2 sockets have ListAndWatch open: newer.sock, older.sock"
        assert await found(kubelet) == [("two-plugins", said)]
        older.end_stream()
        await kubelet.events.wait("stream-ended", RESOURCE)
        await newer.stop()
        await older.stop()


async def test_a_second_register_at_one_socket_is_found(kubelet_dir):
    """While its stream is open, which up to 1.36 has two streams; it is said when it happens, too."""
    async with running(kubelet_dir, kubernetes="1.36") as kubelet:
        plugin = await GoodPlugin(kubelet, "a").up()
        mark = kubelet.events.mark()
        await plugin.register()
        await kubelet.events.wait("list", RESOURCE, since=mark)
        said = f"registered again at {plugin.socket} while its ListAndWatch there is open"
        assert [event.detail["problem"] for event in kubelet.events.since(0, "doubtful")] == [said]
        assert await found(kubelet) == [("same-socket-again", said)]
        await plugin.stop()


async def test_a_second_register_at_one_socket_that_is_refused_is_found(kubelet_dir):
    """Since 1.37; the plugin's end is not noticed afterwards, which `check` and `wait` say."""
    async with running(kubelet_dir, kubernetes="1.37") as kubelet:
        plugin = await GoodPlugin(kubelet, "a").up()
        with pytest.raises(grpc.aio.AioRpcError, match="already connected"):
            await plugin.register()
        said = f"registered again at {plugin.socket} while its ListAndWatch there is open"
        refused = ("register-refused", f"device plugin already connected: {plugin.socket}")
        assert await found(kubelet) == [refused, ("same-socket-again", said)]
        await plugin.stop()
        await kubelet.events.wait("stream-ended", RESOURCE)
        unnoticed = (
            f"ListAndWatch of {plugin.socket} has ended, and the kubelet has not noticed it;"
            " 1 of 1 devices are allocatable"
        )
        assert reports.why_not(kubelet, RESOURCE)[0] == unnoticed
        assert (await found(kubelet))[-1] == ("gone", f"{unnoticed}: pods are sent to it")


async def test_a_second_register_after_a_restart_is_found(kubelet_dir):
    """By a plugin that takes each event of the directory for a new kubelet, and cannot wait for its first call."""

    class Twice(GoodPlugin):
        async def _again(self):
            await super()._again()
            await self.register()

    async with running(kubelet_dir, kubernetes="1.36") as kubelet:
        plugin = await Twice(kubelet, "a").up()
        said = f"registered again at {plugin.socket} while its ListAndWatch there is open"
        assert await found(kubelet, restart=True) == [("same-socket-again", said)]
        await plugin.stop()


async def test_a_plugin_that_registers_again_properly_is_no_rival(kubelet_dir):
    """It has ended its first stream, or taken another socket."""
    async with running(kubelet_dir) as kubelet:
        plugin = await GoodPlugin(kubelet, "a").up()
        await plugin.stop()
        await kubelet.events.wait("disconnected", RESOURCE)
        await plugin.up()
        assert await found(kubelet) == []
        await plugin.stop()


async def test_a_plugin_that_dies_after_it_was_back_is_found(kubelet_dir):
    """It is watched for a moment."""

    class Dying(GoodPlugin):
        async def _again(self):
            await super()._again()
            await self.kubelet.events.wait("list", RESOURCE, since=self.kubelet.events.mark() - 1)
            await self.stop()

    async with running(kubelet_dir) as kubelet:
        plugin = await Dying(kubelet, "a", "b").up()
        assert await found(kubelet, restart=True) == [("not-registered-again", "back with 0 of 2 Healthy devices")]
        await plugin.stop()


async def test_what_a_plugin_did_that_is_not_back_is_found(kubelet_dir):
    """How often Register was called, and what became of it."""

    class Refused(GoodPlugin):
        async def _again(self):
            for _ in range(2):
                with pytest.raises(Exception, match="is not supported by kubelet"):
                    await self.register(version="v1alpha")

    async with running(kubelet_dir) as kubelet:
        plugin = await Refused(kubelet, "a").up()
        [(check, said)] = await found(kubelet, restart=True, patience=2.0)
        assert check == "not-registered-again"
        assert "; Register was called 2 times: its registration was refused: requested API version" in said
        await plugin.stop()


async def test_the_same_devices_in_another_order_are_the_same_list(kubelet_dir):
    """Go's maps have none."""
    async with running(kubelet_dir) as kubelet:
        plugin = await GoodPlugin(kubelet, "a", "b").up()
        for names in ("ba", "ab", "ba"):
            mark = kubelet.events.mark()
            plugin.send(*map(device, names))
            await kubelet.events.wait("list", RESOURCE, since=mark)
        assert await found(kubelet) == [("repeated-list", "the same list came 4 times in a row")]
        await plugin.stop()


async def test_a_stream_that_the_kubelet_has_dropped_is_named(kubelet_dir):
    """Up to 1.36 the newer plugin's end takes the resource, and the older one goes on without a use."""
    async with running(kubelet_dir, kubernetes="1.36") as kubelet:
        older = await GoodPlugin(kubelet, "a", endpoint="older.sock").up()
        newer = await GoodPlugin(kubelet, "a", endpoint="newer.sock").up()
        newer.end_stream()
        await kubelet.events.wait("disconnected", RESOURCE)
        [(check, said)] = await found(kubelet)
        assert check == "gone"
        assert said.endswith("; ListAndWatch of older.sock is open, and the kubelet asks it nothing")
        await newer.stop()
        await older.stop()


def test_status_shows_every_stream(devherd_kubelet, serving):
    """The one that the kubelet asks, and the others in lines of their own."""
    serving(endpoint="older.sock")
    serving(endpoint="newer.sock")
    devherd_kubelet.wait(RESOURCE)
    [resource] = devherd_kubelet.status()["resources"]
    assert (resource["resource"], resource["plugin"]["socket"].rpartition("/")[2]) == (RESOURCE, "newer.sock")
    assert [each["socket"].rpartition("/")[2] for each in resource["streams"]] == ["older.sock", "newer.sock"]
    [_, _asked, other, _rules] = sim_kubelet(devherd_kubelet.directory, "status").stdout.splitlines()
    assert (other.split()[1].rpartition("/")[2], "one more stream is open" in other) == ("older.sock", True)


async def test_a_path_for_an_endpoint_that_leads_nowhere_is_found(kubelet_dir, monkeypatch):
    """The commonest mistake: the kubelet says only that it could not dial."""
    monkeypatch.setattr(connections, "DIAL_SECONDS", 0.2)
    path = "/var/lib/kubelet/device-plugins/p.sock"
    async with running(kubelet_dir) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError):
            await SmallPlugin(kubelet, "a", endpoint=path).register()
        meant = f"{kubelet.paths.plugin_directory}{path}"
        said = f"failed to dial device plugin: context deadline exceeded; it dialled {meant}, where nothing is"
        assert reports.why_not(kubelet, RESOURCE)[0] == f"its registration was refused: {said}"
        slash = ("endpoint-with-a-slash", f"its endpoint `{path}` means {meant}")
        assert await found(kubelet) == [("register-refused", said), slash]


def test_nothing_to_check_does_not_pass(devherd_kubelet):
    """Nor does an allocation of a resource that nobody has registered."""
    checked = sim_kubelet(devherd_kubelet.directory, "check")
    assert (checked.returncode, checked.stdout) == (1, "")
    assert checked.stderr.startswith("devherd: there is nothing to check — no plugin has called Register at ")
    for output in ("table", "json"):
        given = sim_kubelet(devherd_kubelet.directory, "allocate", RESOURCE, 1, "--output", output)
        assert (given.returncode, given.stdout) == (1, "")
        assert given.stderr.startswith(f"devherd: no plugin has registered {RESOURCE} — ")


def test_a_finding_can_be_accepted(devherd_kubelet, serving):
    """By its name; another name is an error with the nearest one."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    directory = devherd_kubelet.directory
    checked = sim_kubelet(directory, "check", "--no-restart", "--ignore", "unknown-id-accepted")
    assert (checked.returncode, checked.stdout) == (0, "no findings\n")
    assert devherd_kubelet.check(restart=False, ignore=["unknown-id-accepted"]) == []
    wrong = sim_kubelet(directory, "check", "--ignore", "unknown-id")
    assert (wrong.returncode, "did you mean `unknown-id-accepted`?" in wrong.stderr) == (2, True)
    with pytest.raises(DevherdError, match="`unknown-id` is no finding"):
        devherd_kubelet.check(ignore=["unknown-id"])


def test_a_check_leaves_the_kubelet_away_for_ten_seconds(devherd_kubelet, serving):
    """Where it is not said otherwise: some plugins end when there is no kubelet for a while."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    [*_, finding] = devherd_kubelet.check(timeout=0.2)
    assert (finding["check"], "which was away for 10 s" in finding["problem"]) == ("not-registered-again", True)
    away = [event for event in devherd_kubelet.events() if event["kind"] in {"stopped", "started"}]
    assert [event["kind"] for event in away] == ["started", "stopped", "started"]
