"""What `devherd sim kubelet ACTION --output json` prints is what its help says, and what the fixture returns."""

import json

import pytest
from sim_kubelet import sim_kubelet
from small_plugin import RESOURCE

from devherd.cli.sim_kubelet_answers import ANSWERS
from devherd.proto import deviceplugin_v1beta1_pb2 as api

SAME = {"streams": "plugin", "resources": "", "allocations": ""}
"""Keys whose objects the help describes elsewhere."""
FREE = {"envs", "annotations"}
"""Objects whose keys are the plugin's."""


def keys(value, path=""):
    """The paths of all keys in a JSON value, as the help writes them."""
    if isinstance(value, list):
        for each in value:
            yield from keys(each, f"{path}[]")
        return
    if isinstance(value, dict) and path not in FREE:
        for name, inner in value.items():
            yield f"{path}.{name}".strip(".")
            if name not in SAME:
                yield from keys(inner, f"{path}.{name}".strip("."))


def printed(devherd_kubelet, *words):
    """The answer of an action, which may end with 1."""
    done = sim_kubelet(devherd_kubelet.directory, *words, "--output", "json")
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)


async def everything(_ids):
    """An answer with one of each."""
    return api.AllocateResponse(
        container_responses=[
            api.ContainerAllocateResponse(
                envs={"A": "1"},
                annotations={"b": "2"},
                mounts=[api.Mount(container_path="/c", host_path="/c", read_only=True)],
                devices=[api.DeviceSpec(container_path="/d", host_path="/d", permissions="rw")],
                cdi_devices=[api.CDIDevice(name="example.com/gpu=0")],
            )
        ]
    )


@pytest.mark.devherd_kubelet(grace_period=0.1)
def test_the_keys_are_those_of_the_help(devherd_kubelet, serving, tmp_path):
    """No more, no fewer, in every state that has one."""
    lost = serving(lambda plugin: setattr(plugin, "resource", "example.com/lost"), endpoint="lost.sock")
    devherd_kubelet.wait("example.com/lost")
    serving.do(lost, lost.stop)
    devherd_kubelet.wait("example.com/lost", capacity=0)
    devherd_kubelet.refuse("example.com/refused")
    serving(lambda plugin: setattr(plugin, "resource", "example.com/refused"), endpoint="refused.sock")
    devherd_kubelet.refuse(RESOURCE)
    serving(endpoint="first.sock")
    serving(lambda plugin: setattr(plugin, "allocate", everything))
    found = {"wait": set(keys(printed(devherd_kubelet, "wait", RESOURCE)))}
    found["allocate"] = set(keys(printed(devherd_kubelet, "allocate", RESOURCE, "1")))
    manifest = f"{{containers: [{{name: main, resources: {{limits: {{{RESOURCE}: 1}}}}}}]}}"
    (tmp_path / "pod.yaml").write_text(f"kind: Pod\nmetadata: {{name: train}}\nspec: {manifest}\n")
    admitted = printed(devherd_kubelet, "admit", tmp_path / "pod.yaml")
    found["devices"] = set(keys(printed(devherd_kubelet, "devices")))
    status = printed(devherd_kubelet, "status")
    found["status"] = {key for key in keys(status) if not key.endswith((".error", "d_error.seconds_ago"))}
    found["status"] -= {"forgotten[].last_error.seconds_ago", "refused[].last_error.seconds_ago"}
    found["check"] = set(keys(printed(devherd_kubelet, "check", RESOURCE, "--no-restart")))
    found["free"] = set(keys(printed(devherd_kubelet, "free", "train")))
    assert {action: sorted(names) for action, names in found.items()} == {
        action: sorted(names) for action, names in ANSWERS.items() if action != "admit"
    }
    of_allocate = {key for key in found["allocate"] if key not in {"namespace", "pod", "resource"}}
    assert {key.removeprefix("[].") for key in keys(admitted) if not key.startswith(("[].envs.", "[].annot"))} == (
        of_allocate - {"annotations"}
    )
    [resource] = status["resources"]
    assert resource["streams"] == [resource["plugin"]]
    assert set(status["allocations"][0]) == {key.removeprefix("[].") for key in found["free"]}


def test_the_fixture_returns_the_same(devherd_kubelet, serving):
    """As the commands print."""
    serving()
    devherd_kubelet.wait(RESOURCE)
    assert printed(devherd_kubelet, "devices") == devherd_kubelet.devices() == devherd_kubelet.devices(RESOURCE)
    assert printed(devherd_kubelet, "free", "pod") == devherd_kubelet.free()
    ignored = ["check", "--no-restart", "--ignore", "unknown-id-accepted"]
    assert printed(devherd_kubelet, *ignored[:2]) == devherd_kubelet.check(restart=False)
    assert printed(devherd_kubelet, *ignored) == []
