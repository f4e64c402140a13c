"""Labels before a small API server: what is written, taken back, and said when it cannot be."""

import time
from pathlib import Path

import pytest
from client import Client
from objects_api import FEATURE, NODE
from remembered import message_of

from devherd import spool
from devherd.config.api_access import ApiAccess
from devherd.config.loader import load, resolve
from devherd.config.model import Config
from devherd.config.resolved import write_resolved
from devherd.kubernetes import labeller
from devherd.kubernetes.access import has_labels_to_remove, needs_process, notice_of_labels
from devherd.kubernetes.labeller import Debounce
from devherd.proto.spool_pb2 import Offers, WrittenLabels
from devherd.scanner.once import scan_once

COUNT = "devherd.io/example.com_gpu.count"


class Instance(Client):
    """The run directory of an instance with some simulated devices, and the process."""

    def __init__(self, directory: Path, server) -> None:
        super().__init__(directory, server)
        self.features = directory / "host/features.d"
        self.features.mkdir(parents=True)

    def configure(self, write: str, count: int = 3, **options) -> None:
        """What the scanner does at a reload."""
        labels = {"write": write, "feature_file": "/features.d/devherd"} | options
        simulated = [{"name": "example.com/gpu", "count": count}] if count else []
        content = {"host_root": self.directory / "host", "run_dir": self.directory, "node_labels": labels}
        content["kubernetes"] = {"events": False}
        config = resolve(Config.model_validate(content | {"simulated": simulated}))
        report = scan_once(config)
        spool.write(config.settings().devices_file, message_of(report.inventory))
        spool.write(config.settings().offers_file, Offers(offers=report.offers, version=time.time_ns()))
        write_resolved(config.settings().resolved_config_file, config)
        self.config = config

    def is_wanted(self) -> bool:
        """Whether there are labels to be removed."""
        return has_labels_to_remove(self.config.settings(), self.server.access)

    def complaints(self) -> list[str]:
        return [error for _, error in self.problems("labels")]

    def labels(self) -> dict[str, str]:
        return self.server.objects[NODE]["metadata"]["labels"]

    def until_labelled(self, **labels: str) -> None:
        wanted = {COUNT: labels["count"]} if labels else {}
        self.until(lambda: self.labels() == wanted, wanted)


@pytest.fixture
def instance(tmp_path, objects_api):
    instance = Instance(tmp_path / "run", objects_api)
    yield instance
    instance.stop()
    assert "Traceback" not in instance.log.read_text()


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
    instance.until(instance.complaints, "it complains")
    [error] = instance.complaints()
    assert error.startswith("labels cannot be written: 403: nodes is forbidden: add the component deploy/kubernetes/")

    instance.server.refusal = None

    instance.until_labelled(count="3")
    instance.until(lambda: not instance.complaints(), "the complaint is taken back")
    assert instance.log.read_text().count("WARNING") == 1


def test_without_a_token_it_says_what_else_there_is(instance):
    """Outside a cluster, or in a pod whose token is not mounted."""
    instance.port = 0
    instance.configure("node_feature")
    instance.start()

    instance.until(instance.complaints, "it complains")

    assert instance.complaints() == [
        "no API server is known: give the pod its token, name a `kubeconfig`, or use `write: feature_file`"
    ]


def test_another_labellers_labels_are_a_problem(instance):
    """They stay as they are; the others are written."""
    instance.server.label(COUNT, "1")
    instance.configure("node")
    instance.start()

    instance.until(instance.complaints, "it complains")

    assert instance.complaints()[0].startswith(f"{COUNT}: written by another program or a person")
    assert instance.server.objects[NODE]["metadata"]["labels"] == {COUNT: "1"}


def test_devices_that_flap_do_not_flood_the_server(instance):
    """Five writings at once, then one in ten seconds, each for what stands by then."""
    instance.configure("node", count=1)
    instance.start()
    began = time.monotonic()
    for count in range(1, 40):
        instance.configure("node", count=count)
        time.sleep(0.05)

    assert len(instance.server.writes) <= 6 + (time.monotonic() - began) / 10
    instance.until_labelled(count="39")


def test_labels_wait_for_nvml_which_alone_knows_some(instance):
    """They would come in two steps, and those that stand from before would go and come."""
    (instance.directory / "requests").mkdir()
    (instance.directory / "requests/nvml.json").write_text("{}")
    instance.configure("node")
    instance.start()
    time.sleep(1)
    assert instance.server.writes == []

    (instance.directory / "facts").mkdir()
    (instance.directory / "facts/nvml.json").write_text('{"facts": null}')

    instance.until_labelled(count="3")


def test_what_changes_all_the_time_is_waited_for_no_longer_than_half_a_minute(monkeypatch):
    """And what comes in steps until it has stood for two seconds."""
    now = 100.0
    monkeypatch.setattr(labeller.time, "monotonic", lambda: now)
    waiting = Debounce(2.0)

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
    time.sleep(0.5)

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
    time.sleep(1)

    instance.until_labelled(count="3")


def left_over(tmp_path, write: str):
    """A configuration without labels, where an earlier one had them: the state directory outlives a boot."""
    options = {"run_dir": str(tmp_path / "run"), "state_dir": str(tmp_path / "state")}
    config = resolve(load(options, {}))
    settings = config.settings()
    settings.written_labels_file.parent.mkdir(parents=True)
    spool.write(settings.written_labels_file, WrittenLabels(write=write))
    assert not settings.written_labels_file.is_relative_to(settings.run_dir)
    return config


def test_labels_that_were_written_before_a_boot_are_still_taken_back(tmp_path, api_server, monkeypatch):
    """Defect: a boot empties the run directory, and nobody knew of them any more. The state directory does."""
    config = left_over(tmp_path, "node")
    monkeypatch.setattr("devherd.config.api_access.SERVICE_ACCOUNT", api_server.directory)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    assert has_labels_to_remove(config.settings(), ApiAccess.of_this_pod())
    assert notice_of_labels(config, config.settings()) == ""
    config.settings().written_labels_file.unlink()
    assert not has_labels_to_remove(config.settings(), ApiAccess.of_this_pod())


def test_labels_that_are_switched_off_and_out_of_reach_are_no_problem_and_no_process(tmp_path, monkeypatch):
    """Defect: reinstalled without the component labels-node, each node complained of them for ever.

    What is left is said once, with the cure; a feature file is still in reach.
    """
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = left_over(tmp_path, "node")
    settings = config.settings()

    assert not needs_process(config, settings)
    assert "`devherd labels --remove` removes them" in notice_of_labels(config, settings)
    spool.write(settings.written_labels_file, WrittenLabels(write="feature_file"))
    assert needs_process(config, settings)
    assert notice_of_labels(config, settings) == ""


def test_labels_that_are_switched_off_and_may_not_be_removed_are_said_once_and_are_no_problem(instance):
    """An upgrade without labels-node, where the pod has its token for Events."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")
    instance.stop()
    instance.server.refusal = (403, "nodes is forbidden")
    instance.configure("none")
    instance.start()
    instance.until(lambda: "labels written earlier stay: 403" in instance.log.read_text(), "it is said")
    time.sleep(1)

    assert instance.complaints() == []
    assert instance.log.read_text().count("labels written earlier stay") == 1


def test_labels_come_back_at_once_when_the_node_was_made_anew_or_somebody_has_removed_them(instance):
    """Defect: they were looked at each ten minutes."""
    instance.configure("node")
    instance.start()
    instance.until_labelled(count="3")
    instance.server.delete_node()
    instance.server.create_node("second")
    instance.until_labelled(count="3")
    instance.server.label(COUNT, None)
    instance.until_labelled(count="3")
    instance.server.label("example.com/mine", "yes")
    time.sleep(1)

    assert instance.server.reads == 1
    assert instance.labels() == {COUNT: "3", "example.com/mine": "yes"}
    assert len(instance.server.writes) == 3


def test_an_object_that_somebody_has_removed_comes_back(instance):
    """Node Feature Discovery removes it with the Node; nobody tells of that."""
    instance.waits["labels_look"] = 1.0
    instance.configure("node_feature")
    instance.start()
    instance.until(lambda: FEATURE in instance.server.objects, "the object is there")
    del instance.server.objects[FEATURE]
    instance.until(lambda: FEATURE in instance.server.objects, "the object is back")
