"""Process `kubernetes:labels` before a small API server: what is written, taken back, and said when it cannot be."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from objects_api import FEATURE, NODE
from reported import problems_of

from devherd import spool
from devherd.config.loader import load
from devherd.config.model import Config
from devherd.config.resolution import resolve
from devherd.config.resolved import Config as Resolved
from devherd.config.resolved import write_resolved
from devherd.inventory import message_of
from devherd.kubernetes import labeller
from devherd.kubernetes.labeller import Debounce
from devherd.proto.spool_pb2 import Offers, WrittenLabels
from devherd.scanner.once import scan_once
from devherd.supervisor.programs import DEVHERD

PROCESS = Path(__file__).with_name("labeller_process.py")
COUNT = "devherd.io/example.com_gpu.count"


def is_wanted(config: Resolved) -> bool:
    """Whether the supervisor runs the process under this configuration."""
    (program,) = (each for each in DEVHERD.children if (each.group, each.name) == ("kubernetes", "labels"))
    return program.wanted(config, config.settings())


class Instance:
    """The run directory of an instance with some simulated devices, and the process."""

    def __init__(self, directory: Path, server) -> None:
        self.directory = directory
        self.server = server
        self.port = server.port
        self.log = directory / "log"
        self.features = directory / "host/features.d"
        self._process: subprocess.Popen | None = None
        for made in ("kubernetes", "host/features.d"):
            (directory / made).mkdir(parents=True)

    def configure(self, write: str, count: int = 3, **options) -> None:
        """What the scanner does at a reload."""
        labels = {"write": write, "feature_file": "/features.d/devherd"} | options
        simulated = [{"name": "example.com/gpu", "count": count}] if count else []
        content = {"host_root": self.directory / "host", "run_dir": self.directory, "node_labels": labels}
        config = resolve(Config.model_validate(content | {"simulated": simulated}))
        report = scan_once(config)
        spool.write(config.settings().devices_file, message_of(report.inventory))
        spool.write(config.settings().offers_file, Offers(offers=report.offers, version=time.time_ns()))
        write_resolved(config.settings().resolved_config_file, config)
        self.config = config

    def is_wanted(self) -> bool:
        """Whether the supervisor runs the process."""
        return is_wanted(self.config)

    def start(self) -> None:
        command = [sys.executable, PROCESS, self.directory, self.server.directory, str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=os.environ | {"NODE_NAME": "node-1"})

    def end(self) -> int:
        """Its exit code, once it ends by itself."""
        return self._process.wait(20)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def problems(self) -> list[str]:
        return [error for _, error in problems_of(self.config.settings(), "labels")]

    def until(self, condition, what) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.server.objects}\n{self.log.read_text()}"
            time.sleep(0.01)

    def until_labelled(self, **labels: str) -> None:
        wanted = {COUNT: labels["count"]} if labels else {}
        self.until(lambda: self.server.objects[NODE]["metadata"]["labels"] == wanted, wanted)


@pytest.fixture
def instance(tmp_path, objects_api):
    instance = Instance(tmp_path / "run", objects_api)
    yield instance
    instance.stop()
    assert "Traceback" not in (instance.log.read_text() if instance.log.exists() else "")


def test_the_node_is_labelled_with_what_is_found_and_follows_it(instance):
    """A device that comes or goes changes a count."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")

    instance.configure("node", count=5)

    instance.until_labelled(count="5")


def test_labels_that_are_no_longer_true_are_removed(instance):
    """The last device of a resource has gone."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")

    instance.configure("node", count=0)

    instance.until_labelled()


def test_labels_stay_when_the_process_ends_and_go_when_the_configuration_says_so(instance):
    """Pods choose their node by them: a restart must not move them. The request goes when nothing is left."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")
    instance.stop()
    instance.until_labelled(count="3")

    instance.configure("none")
    instance.start()

    instance.until_labelled()
    instance.until(lambda: not instance.is_wanted(), "nothing is left to be taken back")


def test_another_way_takes_back_what_the_first_has_written(instance):
    """From the node to Node Feature Discovery's object, and on to its file; each change is for another process."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")

    instance.configure("node_feature")
    assert instance.end() == 75
    instance.start()
    instance.until_labelled()
    instance.until(lambda: FEATURE in instance.server.objects, "the object is there")

    instance.configure("feature_file")
    assert instance.end() == 75
    instance.start()
    file = instance.features / "devherd"
    instance.until(file.exists, "the file is there")
    assert f"{COUNT}=3\n" in file.read_text()
    assert FEATURE not in instance.server.objects


def test_a_server_that_is_away_is_a_problem_until_it_is_back(instance):
    """With the cure where it is a matter of rights; nothing is lost."""
    instance.server.refusal = (403, "nodes is forbidden")
    instance.configure("node")
    instance.start()
    instance.until(instance.problems, "it complains")
    [error] = instance.problems()
    assert error.startswith("labels cannot be written: 403: nodes is forbidden: add the component deploy/kubernetes/")

    instance.server.refusal = None

    instance.until_labelled(count="3")
    instance.until(lambda: not instance.problems(), "the complaint is taken back")
    assert instance.log.read_text().count("WARNING") == 1


def test_without_a_token_it_says_what_else_there_is(instance):
    """Outside a cluster, or in a pod whose token is not mounted."""
    instance.port = 0
    instance.configure("node_feature")
    instance.start()

    instance.until(instance.problems, "it complains")

    assert instance.problems() == [
        "there is no API server to talk to: give the pod its token, or use `node_labels: {write: feature_file}`"
    ]


def test_another_labellers_labels_are_a_problem(instance):
    """They stay as they are; the others are written."""
    instance.server.objects[NODE]["metadata"]["labels"][COUNT] = "1"
    instance.configure("node")
    instance.start()

    instance.until(instance.problems, "it complains")

    assert instance.problems()[0].startswith(f"{COUNT}: written by another program or a person")
    assert instance.server.objects[NODE]["metadata"]["labels"] == {COUNT: "1"}


def test_devices_that_flap_do_not_flood_the_server(instance):
    """Five writings at once, then one in ten seconds, each for what stands by then."""
    instance.configure("node", count=1)
    instance.start()
    began = time.monotonic()
    for count in range(1, 40):
        instance.configure("node", count=count)
        time.sleep(0.2)

    assert len(instance.server.writes) <= 6 + (time.monotonic() - began) / 10
    instance.until_labelled(count="39")


def test_labels_wait_for_nvml_which_alone_knows_some(instance):
    """They would come in two steps, and those that stand from before would go and come."""
    (instance.directory / "requests").mkdir()
    (instance.directory / "requests/nvml.json").write_text("{}")
    instance.configure("node")
    instance.start()
    time.sleep(4)
    assert instance.server.writes == []

    (instance.directory / "facts").mkdir()
    (instance.directory / "facts/nvml.json").write_text('{"facts": null}')

    instance.until_labelled(count="3")


def test_what_changes_all_the_time_is_waited_for_no_longer_than_half_a_minute(monkeypatch):
    """And what comes in steps until it has stood for two seconds."""
    now = 100.0
    monkeypatch.setattr(labeller.time, "monotonic", lambda: now)
    waiting = Debounce()

    def looks(*seen: int, is_awaited: bool = False) -> list[bool]:
        nonlocal now
        found = []
        for each in seen:
            found.append(waiting.after(each, is_awaited=is_awaited))
            now += 1.0
        return found

    assert looks(1, 2, 3, 3, 3, 3) == [False, False, False, False, True, True]
    assert looks(3, 3, is_awaited=True) == [False, False]
    assert looks(3, 4, 4, 4) == [True, False, False, True]
    assert looks(*range(10, 45)) == [False] * 30 + [True] * 5


def test_a_torn_configuration_takes_no_label_away(instance):
    """It is written again; meanwhile the process goes on with what it has read."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")

    instance.config.settings().resolved_config_file.write_text('{"node_labels": {"write": "no')
    time.sleep(3)

    instance.until_labelled(count="3")
    instance.configure("node", count=5)
    instance.until_labelled(count="5")


def test_an_absent_list_of_devices_takes_no_label_away(instance):
    """A run directory that was emptied: the scanner has not scanned yet."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")
    instance.stop()
    instance.config.settings().devices_file.unlink()
    instance.config.settings().written_labels_file.unlink()

    instance.start()
    time.sleep(2)

    instance.until_labelled(count="3")


def test_labels_that_were_written_before_a_boot_are_still_taken_back(tmp_path):
    """Defect: a boot empties the run directory, and nobody knew of them any more. The state directory does."""
    options = {"run_dir": str(tmp_path / "run"), "state_dir": str(tmp_path / "state")}
    config = resolve(load(options, {}))
    settings = config.settings()
    assert not is_wanted(config)
    settings.written_labels_file.parent.mkdir(parents=True)
    spool.write(settings.written_labels_file, WrittenLabels(write="node"))
    assert is_wanted(config)
    assert not settings.written_labels_file.is_relative_to(settings.run_dir)
