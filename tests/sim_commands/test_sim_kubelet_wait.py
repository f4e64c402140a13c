"""`devherd sim kubelet wait`: ends when it is so, and otherwise says how far the plugin has come."""

import asyncio
import json
import re
import subprocess
import time

import pytest
from sim_kubelet import COMMAND, sim_kubelet
from small_plugin import RESOURCE

from devherd.errors import DevherdError


def test_wait_ends_when_the_devices_are_there(devherd_kubelet, serving):
    """Its last words are numbers, also as JSON."""
    serving()
    directory = devherd_kubelet.directory
    waited = sim_kubelet(directory, "wait", RESOURCE, "--allocatable", 2)
    assert (waited.returncode, waited.stdout) == (0, f"{RESOURCE}: 2 of 2 devices are allocatable\n")
    answer = json.loads(sim_kubelet(directory, "wait", RESOURCE, "--output", "json").stdout)
    assert (answer["name"], answer["allocatable"]) == (RESOURCE, 2)


def test_wait_says_what_was_missing(devherd_kubelet, serving):
    """Nobody has called, somebody was refused, or the devices are fewer."""
    for said in (
        "its plugin has not called Register; called so far: no plugin at all",
        "its registration was refused: requested API version",
    ):
        waited = sim_kubelet(devherd_kubelet.directory, "wait", RESOURCE, "--timeout", "300ms")
        assert (waited.returncode, waited.stdout) == (1, "")
        assert waited.stderr.startswith(f"devherd: {RESOURCE} is not there after 0.3 s — ")
        assert said in waited.stderr
        serving(version="v1alpha")
    serving()
    devherd_kubelet.wait(RESOURCE)
    waited = sim_kubelet(devherd_kubelet.directory, "wait", RESOURCE, "--allocatable", 3, "--timeout", "500ms")
    assert (waited.returncode, "2 of 2 devices are allocatable" in waited.stderr) == (1, True)


def test_wait_waits_for_the_kubelet_too(kubelet_dir):
    """It was started in the background a moment ago, as in the script of a CI."""
    waited = sim_kubelet(kubelet_dir, "wait", RESOURCE, "--timeout", "200ms")
    assert (waited.returncode, "no embedded kubelet answers" in waited.stderr) == (4, True)
    waiting = subprocess.Popen([*COMMAND, "wait", "--timeout", "60s", "--kubelet-dir", kubelet_dir])
    kubelet = subprocess.Popen([*COMMAND, "--kubelet-dir", kubelet_dir], stdout=subprocess.DEVNULL)
    assert waiting.wait(timeout=90) == 0
    kubelet.terminate()
    kubelet.wait()


def said_in_time(devherd_kubelet, *words):
    """What `wait` says of the resource when half a second is over."""
    with pytest.raises(DevherdError) as refused:
        devherd_kubelet.wait(RESOURCE, timeout=0.5, **dict(words))
    return refused.value.why


def eventually_said(devherd_kubelet, end):
    """What `wait` says in the end: that a plugin has come as far as that takes a moment."""
    began = time.monotonic()
    while not (said := said_in_time(devherd_kubelet)).endswith(end):
        assert time.monotonic() - began < 30, said
    return said


def hanging(_plugin):
    """A method of a plugin that does not answer."""

    async def hang(_request, _context):
        await asyncio.sleep(60)

    return hang


def test_wait_says_that_the_kubelet_is_still_waiting_for_the_options(devherd_kubelet, serving):
    """Register is not answered before GetDevicePluginOptions is."""
    serving(lambda plugin: vars(plugin).update(GetDevicePluginOptions=hanging(plugin)), wait=False)
    said = eventually_said(devherd_kubelet, " s ago, the kubelet is still waiting for its options")
    assert said.startswith("Register called ")


def test_wait_says_what_the_kubelet_is_dialling(devherd_kubelet, serving):
    """And that nothing is there: the plugin serves elsewhere."""

    def serves_elsewhere(plugin):
        async def serve():
            pass

        plugin.serve = serve

    serving(serves_elsewhere, wait=False)
    path = devherd_kubelet.plugin_directory / "p.sock"
    said = eventually_said(devherd_kubelet, f" s ago, the kubelet is still dialling {path}, where nothing is")
    assert said.startswith("Register called ")


def test_wait_says_that_there_is_no_list_yet(devherd_kubelet, serving):
    """The plugin is registered, and ListAndWatch does not send."""

    async def silent(_request, _context):
        await asyncio.sleep(60)
        yield

    serving(lambda plugin: vars(plugin).update(ListAndWatch=silent))
    said = said_in_time(devherd_kubelet)
    assert (said[:11], said.partition(" s ago")[2]) == ("registered ", ", no list yet")


def test_wait_says_that_a_plugin_is_not_back_since_the_start(devherd_kubelet, serving):
    """The kubelet knows the resource from its checkpoint."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    devherd_kubelet.restart()
    said = said_in_time(devherd_kubelet)
    assert said.startswith("not registered since the kubelet's start ")


def test_wait_says_that_the_kubelet_is_stopped(devherd_kubelet, serving):
    """Nobody can register then; what waits goes on when it starts."""
    serving()
    devherd_kubelet.stop()
    assert said_in_time(devherd_kubelet) == "the kubelet is stopped"
    waited = sim_kubelet(devherd_kubelet.directory, "wait", "--timeout", "300ms")
    assert (waited.returncode, "it is stopped" in waited.stderr) == (4, True)
    devherd_kubelet.start()
    assert sim_kubelet(devherd_kubelet.directory, "wait").returncode == 0


def test_a_loss_can_be_waited_for(devherd_kubelet, serving):
    """The plugin's end by `--gone`, by no allocatable devices, and by the capacity that is left."""
    plugin = serving()
    devherd_kubelet.wait(RESOURCE, allocatable=2, capacity=2, registrations=1)
    directory = devherd_kubelet.directory
    not_gone = sim_kubelet(directory, "wait", RESOURCE, "--gone", "--timeout", "300ms")
    assert not_gone.stderr.startswith(
        f"devherd: {RESOURCE} is not gone after 0.3 s — 2 of 2 devices are allocatable — "
    )
    serving.do(plugin, plugin.stop)
    assert sim_kubelet(directory, "wait", RESOURCE, "--gone").stdout == f"{RESOURCE}: no plugin is connected\n"
    assert sim_kubelet(directory, "wait", RESOURCE, "--allocatable", 0, "--capacity", 2).returncode == 0
    said = said_in_time(devherd_kubelet, ("allocatable", 2))
    assert said.startswith("not connected since ")
    assert said.endswith("; 0 of 2 devices are allocatable")


@pytest.mark.devherd_kubelet(grace_period=0.2)
def test_the_end_of_the_grace_period_can_be_waited_for(devherd_kubelet, serving):
    """The resource has no capacity then; `status` says that it was forgotten, not that it was refused."""
    plugin = serving()
    devherd_kubelet.wait(RESOURCE)
    serving.do(plugin, plugin.stop)
    devherd_kubelet.wait(RESOURCE, capacity=0)
    status = devherd_kubelet.status()
    assert (status["resources"], status["refused"]) == ([], [])
    assert [each["resource"] for each in status["forgotten"]] == [RESOURCE]
    text = sim_kubelet(devherd_kubelet.directory, "status").stdout
    assert "no plugin is registered at" in text
    assert re.search(rf"^{RESOURCE}: forgotten \d+s ago: rpc error: code = Unavailable", text, re.MULTILINE), text
    assert said_in_time(devherd_kubelet).startswith("forgotten ")


@pytest.mark.devherd_kubelet(grace_period=0.2)
def test_wait_says_that_nobody_came_back_within_the_grace_period(devherd_kubelet, serving):
    """After a restart no stream has ended: none had begun."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    devherd_kubelet.restart()
    devherd_kubelet.wait(RESOURCE, capacity=0)
    said = eventually_said(
        devherd_kubelet, ", at the end of the grace period; no plugin had registered since the kubelet's start"
    )
    assert said.startswith("forgotten ")


def test_a_resource_that_was_never_there_is_not_gone(devherd_kubelet):
    """A name that is spelled wrong does not pass."""
    for words in ({"gone": True}, {"capacity": 0}, {"allocatable": 0}):
        said = said_in_time(devherd_kubelet, *words.items())
        assert said == "its plugin has not called Register; called so far: no plugin at all"


def test_registrations_can_be_waited_for(devherd_kubelet, serving):
    """Those that were refused count, too."""
    for number in (1, 2):
        serving(version="v1alpha")
        devherd_kubelet.wait(RESOURCE, registrations=number)
    assert said_in_time(devherd_kubelet, ("registrations", 3)).startswith("its registration was refused: requested API")


def test_what_contradicts_itself_is_refused(tmp_path):
    """Before anything is asked."""
    for words, what in (
        ((RESOURCE, "--gone", "--capacity", 1), "--gone with a number"),
        (("--allocatable", 1), "a number, but no resource"),
        (("--gone",), "a number, but no resource"),
    ):
        refused = sim_kubelet(tmp_path, "wait", *words)
        assert (refused.returncode, refused.stderr.partition(" — ")[0]) == (2, f"devherd: {what}")
