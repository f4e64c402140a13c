"""`devherd compare` beside a devherd that plays the present plugin: what it compares, and the cures of differences."""

import asyncio
import re
import shutil
import subprocess
import sys

import pytest
import scratch
import yaml

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

GPU = "nvidia.com/gpu"
ENVVAR = "--device-list-strategy=envvar"
SHARED = {"resources": [{"match": {"index": "0"}, "sharing": {"replicas": 4}}]}


class Node:
    """A kubelet with a plugin of 8 GPUs."""

    def __init__(self, bed):
        self.bed = bed

    async def compared(self, config, plugin=None):
        """Exit code and lines of a comparison with this configuration, and with the plugin's flags or file."""
        (self.bed.directory / "new.yaml").write_text(yaml.safe_dump(config))
        settings = self.bed.settings
        options = [f"--config={self.bed.directory / 'new.yaml'}", f"--kubelet-dir={settings.kubelet_dir}"]
        options += [f"--host-root={settings.host_root}"]
        if plugin is not None:
            (self.bed.directory / "plugin").write_text(plugin)
            options.append(f"--plugin-file={self.bed.directory / 'plugin'}")
        command = [sys.executable, "-m", "devherd", "compare", *options]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert not done.stderr
        return done.returncode, done.stdout.splitlines()

    async def registered(self, count):
        """Wait until the plugin has registered so many ids."""
        await self.bed.until(lambda: self.bed.kubelet.capacity(GPU) == count, "the plugin is registered")


@pytest.fixture
async def node(request):
    """With the configuration of the present plugin as the test's parameter, if it has one."""
    path = scratch.directory()
    bed = Testbed(path, preset("nvidia-8"), getattr(request, "param", {}))
    async with bed:
        yield Node(bed)
    shutil.rmtree(path)


async def test_what_containers_get_is_compared_with_the_plugins_own_settings(node):
    """Defect: "Nothing differs" where containers would get CDI names or indices in place of variables."""
    await node.registered(8)
    code, said = await node.compared({})
    assert (code, said[-2]) == (0, "Nothing differs in names, ids and NUMA nodes.")
    assert said[-1].startswith("Not compared: the variables, mounts, device nodes, annotations and CDI names ")

    code, said = await node.compared({}, ENVVAR)
    same = "Nothing differs: pods would have the same devices, and containers would get the same for them."
    assert (code, said[-1]) == (0, same)

    for options, change, key in (
        (
            {"device_list_strategy": ["cdi-cri"]},
            "no variable NVIDIA_VISIBLE_DEVICES; the CDI name k8s.device-plugin.nvidia.com/gpu=",
            '{"device_list_strategy": ["envvar"]}',
        ),
        (
            {"device_id_strategy": "index", "pass_device_specs": True},
            r"the variable NVIDIA_VISIBLE_DEVICES as \d, not GPU-.*; the device node /dev/nvidia-modeset; ",
            '{"device_id_strategy": "uuid", "pass_device_specs": false}',
        ),
    ):
        code, said = await node.compared({"vendors": {"nvidia": options}}, ENVVAR)
        assert (code, said[0]) == (1, f"{GPU}: 8 = 8 ids, 1 difference")
        assert re.search(f"  container: GPU-.* and 4 more: for GPU-.* a container would get {change}", said[1])
        assert said[2] == f"    to have it as today: vendors: {{nvidia: {key}}}"


async def test_a_setting_of_the_plugin_that_is_not_translated_is_not_called_compared(node):
    """What is left out may have had an effect."""
    await node.registered(8)
    code, said = await node.compared({}, "version: v1\nindividualGPU: {enabled: true}\n")
    assert code == 0
    assert said[-1].startswith("Not compared: settings of the plugin that are not translated")


async def test_what_the_plugins_file_says_nothing_of_is_not_called_compared(node):
    """The defaults of another vendor are no settings of this plugin."""
    await node.registered(8)
    code, said = await node.compared({}, "-shared-dev-num 2")
    assert (code, said[-2]) == (0, "Nothing differs in names, ids and NUMA nodes.")
    assert said[-1].startswith(f"Not compared: what containers get for {GPU}: ")


async def test_a_vendor_that_is_switched_off_is_named_with_its_key(node):
    """Defect: its resource was missing, and no key was told."""
    await node.registered(8)
    code, said = await node.compared({"vendors": {"nvidia": {"enabled": False}}})
    assert code == 1
    assert said[1].endswith("vendors.nvidia.enabled is false")
    assert said[2] == "    to have it as today: vendors.nvidia.enabled: auto"


@pytest.mark.parametrize(
    ("node", "config", "key"),
    [
        (
            {},
            {"resources": [{"match": {"vendor": "nvidia"}, "sharing": {"replicas": 4}}]},
            r"resources\[0\]\.sharing: {replicas: 1}",
        ),
        (
            {},
            {"resources": [{"match": {"vendor": "nvidia"}, "name": "example.com/a"}]},
            rf"resources\[0\]\.name: {GPU}",
        ),
        (
            SHARED,
            {"resources": [{"match": {"vendor": "nvidia"}, "sharing": {"replicas": 4}}]},
            r"before resources\[0\]: {match: {id: \[GPU-.*\]}, sharing: {replicas: 1}}",
        ),
        (SHARED, {}, r"resources: \[{match: {id: \[GPU-[^,]*\]}, sharing: {replicas: 4}}\]"),
    ],
    indirect=["node"],
)
async def test_the_cure_of_a_difference_has_its_effect_where_a_rule_decides_already(node, config, key):
    """Defect: it was a rule that, appended to others, was never reached, and was told again."""
    await node.registered(11 if "id: " in key else 8)
    code, said = await node.compared(config)
    [cure] = [line.partition(": ")[2] for line in said if line.startswith("    to have it as today: ")]
    assert code == 1
    assert re.fullmatch(key, cure)
    assert (await node.compared(cured(config, cure)))[0] == 0


def cured(config, cure):
    """The configuration with the cure written where it says."""
    place, _, setting = cure.partition(": ")
    if place.startswith("before "):
        return config | {"resources": [yaml.safe_load(setting), *config["resources"]]}
    if place == "resources":
        return config | yaml.safe_load(cure)
    [rule] = config["resources"]
    return config | {"resources": [rule | yaml.safe_load(cure.partition(".")[2])]}
