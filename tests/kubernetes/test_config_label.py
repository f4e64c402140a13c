"""The label that chooses the configuration, before a small API server: what it says, and what is refused."""

from pathlib import Path

import pytest
from client import Client

from devherd import spool
from devherd.config.chosen_file import label_answer
from devherd.config.loader import load, resolve
from devherd.config.resolved import write_resolved
from devherd.configurations import DEFAULT_LABEL
from devherd.proto import spool_pb2


class Instance(Client):
    """An instance that chooses among two configurations."""

    def __init__(self, directory: Path, server) -> None:
        super().__init__(directory, server)
        (directory / "configs").mkdir()
        for name in ("default", "mig"):
            (directory / "configs" / name).write_text("kubernetes: {events: false}")
        options = {"configs": str(directory / "configs"), "run_dir": str(directory)}
        config = resolve(load(options, {}, ""))
        self.settings = config.settings()
        write_resolved(self.settings.resolved_config_file, config)

    def label(self, value: str | None) -> None:
        self.server.label(DEFAULT_LABEL, value)

    def refuse(self, why: str) -> None:
        """What the supervisor says of the last reload."""
        said = spool_pb2.Configuration(refusal=why)
        spool.write(self.settings.children_file, spool_pb2.Children(configuration=said))

    def refusals(self) -> list[tuple[str, str]]:
        return self.problems("config")

    def until_chosen(self, value: str) -> None:
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


def test_a_changed_label_is_followed_at_once_and_the_node_is_read_once(instance):
    """Defect: each node of a cluster asked each ten seconds."""
    instance.label("default")
    instance.start()
    instance.until_chosen("default")
    for value in ("mig", "default", "mig"):
        instance.label(value)
        instance.until_chosen(value)

    assert instance.server.reads == 1


def test_a_state_directory_that_takes_nothing_is_said_and_the_label_is_followed(instance, tmp_path):
    """A disk that is full."""
    instance.label("mig")
    instance.start(DEVHERD_STATE_DIR=str(tmp_path / "absent"))
    instance.until_chosen("mig")
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
    instance.until_chosen("")
    instance.label("mig")
    instance.until_chosen("mig")
    instance.label(None)
    instance.until_chosen("")
    assert instance.refusals() == []


def test_a_name_that_is_none_is_a_problem_and_an_event_until_it_is_one(instance):
    """Told once, however often it is looked at."""
    instance.label("absent")
    instance.start()
    instance.until(instance.events, "an Event")
    instance.until(instance.refusals, "a problem")
    assert instance.events() == [("Warning", "ConfigurationRefused")]
    [(about, error)] = instance.refusals()
    assert about == ABOUT
    assert error.startswith("no configuration `absent` in ")
    assert error.endswith("name an existing one: default, mig; the configuration in force stays")

    instance.label("mig")
    instance.until(lambda: len(instance.events()) == 2, "another Event")

    assert instance.events()[1] == ("Normal", "ConfigurationLoaded")
    assert instance.refusals() == []


def test_a_configuration_that_the_supervisor_refuses_is_told_too(instance):
    """With its own words."""
    instance.refuse("bad configuration in mig:1:1 — nonsense — mend it")
    instance.start()
    instance.until(instance.events, "an Event")

    [event] = instance.server.events
    assert event["message"] == "bad configuration in mig:1:1 — nonsense — mend it"
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert instance.refusals() == [(ABOUT, f"{event['message']}; the configuration in force stays")]


def test_a_server_that_cannot_be_asked_is_a_problem_until_it_can(instance):
    """Nothing is written meanwhile: what is in force stays."""
    instance.server.refusal = (403, "nodes is forbidden")
    instance.start()
    instance.until(instance.refusals, "a problem")
    [(about, error)] = instance.refusals()
    cure = "add the component deploy/kubernetes/components/config-by-label; the configuration in force stays"
    assert (about, error) == (ABOUT, f"cannot be read: 403: nodes is forbidden: {cure}")
    assert label_answer(instance.settings.config_label_file) is None

    instance.server.refusal = None

    instance.until_chosen("")
    instance.until(lambda: not instance.refusals(), "the problem is over")


def test_without_a_token_that_is_said(instance):
    """The process runs all the same, so that a token that is mounted later starts another one."""
    instance.port = 0
    instance.start()
    instance.until(instance.refusals, "a problem")

    [(_, error)] = instance.refusals()
    assert error.startswith("cannot be read: there is no API server to talk to: neither a pod's token")
