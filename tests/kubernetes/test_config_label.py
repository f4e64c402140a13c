"""Process `kubernetes:config` before a small API server: what the node's label says, and what is refused."""

import contextlib
import copy
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from objects_api import NODE
from reported import problems_of

from devherd import spool
from devherd.config.chosen_file import label_answer
from devherd.config.loader import load
from devherd.config.resolution import resolve
from devherd.config.resolved import write_resolved
from devherd.configurations import DEFAULT_LABEL
from devherd.kubernetes.access import Access
from devherd.kubernetes.api import Api
from devherd.kubernetes.config_label import label_of
from devherd.proto import spool_pb2

PROCESS = Path(__file__).with_name("config_label_process.py")


class Instance:
    """The run directory of an instance that chooses among two configurations, and the process."""

    def __init__(self, directory: Path, server) -> None:
        self.directory = directory
        self.server = server
        self.port = server.port
        self.log = directory / "log"
        self._process: subprocess.Popen | None = None
        for made in ("kubernetes", "configs"):
            (directory / made).mkdir(parents=True)
        for name in ("default", "mig"):
            (directory / "configs" / name).touch()
        options = {"configs": str(directory / "configs"), "run_dir": str(directory)}
        config = resolve(load(options, {}, ""))
        self.settings = config.settings()
        write_resolved(self.settings.resolved_config_file, config)

    def label(self, value: str | None) -> None:
        labels = self.server.objects[NODE]["metadata"]["labels"]
        if value is None:
            labels.pop(DEFAULT_LABEL, None)
        else:
            labels[DEFAULT_LABEL] = value

    def refuse(self, why: str) -> None:
        """What the supervisor says of the last reload."""
        said = spool_pb2.Configuration(refusal=why)
        spool.write(self.settings.children_file, spool_pb2.Children(configuration=said))

    def start(self, **environment: str) -> None:
        command = [sys.executable, PROCESS, self.directory, self.server.directory, str(self.port)]
        variables = os.environ | {"NODE_NAME": "node-1"} | environment
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=variables)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def problems(self) -> list[tuple[str, str]]:
        return problems_of(self.settings, "config")

    def until(self, condition, what) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.server.events}\n{self.log.read_text()}"
            time.sleep(0.01)

    def until_told(self, value: str) -> None:
        self.until(lambda: (answer := label_answer(self.settings.config_label_file)) and answer.value == value, value)

    def events(self) -> list[tuple[str, str]]:
        return [(each["type"], each["reason"]) for each in self.server.events]


@pytest.fixture
def instance(tmp_path, objects_api):
    instance = Instance(tmp_path / "run", objects_api)
    yield instance
    instance.stop()
    assert "Traceback" not in instance.log.read_text()


def test_what_the_label_said_is_known_after_a_boot(instance, tmp_path):
    """The boot empties the run directory, and the API server may be out of reach: the node must not get the default's.

    The state directory counts that an option or a variable names, not that of a configuration which is still to be
    chosen.
    """
    state, configs = tmp_path / "state", str(instance.directory / "configs")
    state.mkdir()
    (instance.directory / "configs/mig").write_text(f"state_dir: {tmp_path}/elsewhere")
    instance.label("mig")
    instance.start(DEVHERD_STATE_DIR=str(state))
    instance.until((state / "config-label.pb").exists, "the label is kept")
    options, after_boot = {"configs": configs, "run_dir": str(tmp_path / "empty")}, {"DEVHERD_STATE_DIR": str(state)}

    assert load(options, after_boot).settings().config_label_value == "mig"
    assert load({**options, "config_label": "example.com/other"}, after_boot).settings().config_label_value == ""
    assert load(options, after_boot, "").settings().config_label_value == "", "what the API server says counts first"


def test_an_older_label_in_the_memory_of_an_api_server_is_not_followed(instance, objects_api):
    """Defect: one that has just started answered for the others, and the node had the configuration of before."""
    instance.label("default")
    older = copy.deepcopy(objects_api.objects[NODE])
    instance.label("mig")
    objects_api.remembered[NODE] = older  # before the start, too
    instance.start()
    instance.until_told("mig")
    asked = objects_api.asked_of_memory
    instance.until(lambda: objects_api.asked_of_memory >= asked + 3, "it is asked again")
    said = instance.log.read_text()
    instance.label("absent")
    instance.until_told("absent")

    assert "`mig`" in said
    assert "`default`" not in said


def test_an_api_server_answers_from_memory_for_as_long_as_nothing_changes(objects_api):
    """A node asks every ten seconds, and a cluster has thousands: what is kept is read where there is something new."""
    objects_api.objects[NODE]["metadata"]["labels"]["a/b"] = "old"
    remembered = copy.deepcopy(objects_api.objects[NODE])
    objects_api.objects[NODE]["metadata"]["labels"]["a/b"] = "new"
    objects_api.remembered[NODE] = remembered
    with contextlib.closing(Api(Access("127.0.0.1", objects_api.port, objects_api.directory))) as api:
        seen = [label_of(api, "node-1", "a/b", believed) for believed in (None, "old", "new", "")]
        objects_api.remembered.clear()
        seen += [label_of(api, "node-1", "a/b", "new"), label_of(api, "node-1", "none", "")]

    assert seen == ["new", "old", "new", "new", "new", ""]
    assert objects_api.asked_of_memory == 5


def test_a_state_directory_that_takes_nothing_is_said_and_the_label_is_followed(instance, tmp_path):
    """A disk that is full."""
    instance.label("mig")
    instance.start(DEVHERD_STATE_DIR=str(tmp_path / "absent"))
    instance.until_told("mig")
    instance.until(lambda: "cannot keep the value of the node's label" in instance.log.read_text(), "it is said")


def test_an_event_that_could_not_be_told_is_told_later(instance):
    """Defect: it was lost with its one attempt."""
    instance.label("absent")
    instance.server.refuses_events = True
    instance.start()
    instance.until(lambda: "trying again" in instance.log.read_text(), "a refusal")
    instance.server.refuses_events = False
    instance.until(instance.events, "an Event")


ABOUT = f"label {DEFAULT_LABEL} of node node-1"


def test_the_label_is_written_down_each_time_that_it_changes(instance):
    """An empty text where the node has none."""
    instance.start()
    instance.until_told("")
    instance.label("mig")
    instance.until_told("mig")
    instance.label(None)
    instance.until_told("")
    assert instance.problems() == []


def test_a_name_that_is_none_is_a_problem_and_an_event_until_it_is_one(instance):
    """Told once, however often it is looked at."""
    instance.label("absent")
    instance.start()
    instance.until(instance.events, "an Event")
    instance.until(instance.problems, "a problem")
    assert instance.events() == [("Warning", "ConfigurationRefused")]
    [(about, error)] = instance.problems()
    assert about == ABOUT
    assert error.startswith("no configuration `absent` in ")
    assert error.endswith("name an existing one: default, mig; the configuration in force stays")

    instance.label("mig")
    instance.until(lambda: len(instance.events()) == 2, "another Event")

    assert instance.events()[1] == ("Normal", "ConfigurationLoaded")
    assert instance.problems() == []


def test_a_configuration_that_the_supervisor_refuses_is_told_too(instance):
    """With its own words."""
    instance.refuse("bad configuration in mig:1:1 — nonsense — mend it")
    instance.start()
    instance.until(instance.events, "an Event")

    [event] = instance.server.events
    assert event["message"] == "bad configuration in mig:1:1 — nonsense — mend it"
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert instance.problems() == [(ABOUT, f"{event['message']}; the configuration in force stays")]


def test_a_server_that_cannot_be_asked_is_a_problem_until_it_can(instance):
    """Nothing is written meanwhile: what is in force stays."""
    instance.server.refusal = (403, "nodes is forbidden")
    instance.start()
    instance.until(instance.problems, "a problem")
    [(about, error)] = instance.problems()
    cure = "add the component deploy/kubernetes/components/config-by-label; the configuration in force stays"
    assert (about, error) == (ABOUT, f"cannot be read: 403: nodes is forbidden: {cure}")
    assert label_answer(instance.settings.config_label_file) is None

    instance.server.refusal = None

    instance.until_told("")
    instance.until(lambda: not instance.problems(), "the problem is over")


def test_without_a_token_that_is_said(instance):
    """The process runs all the same, so that a token that is mounted later starts another one."""
    instance.port = 0
    instance.start()
    instance.until(instance.problems, "a problem")

    [(_, error)] = instance.problems()
    assert error.startswith("cannot be read: there is no API server to talk to, or the pod has no token")
