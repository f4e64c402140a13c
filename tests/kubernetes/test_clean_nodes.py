"""`devherd labels --remove` before a small API server: many nodes, of which some change or fail meanwhile."""

import argparse
import copy
from urllib.parse import parse_qs

import pytest
from objects_api import merge
from small_api import SmallApi

from devherd.cli import labels
from devherd.errors import UnreachableError
from devherd.kubernetes.labels import ANNOTATION, WrittenToNode

NODES = "/api/v1/nodes"


def node(name, *labels, has_condition=False):
    """With labels of devherd's, and one of somebody else's."""
    annotations = {"other": "x"} | ({ANNOTATION: ",".join(labels)} if labels else {})
    conditions = [{"type": kind} for kind in ("Ready", "DevicesUnhealthy")[: 1 + has_condition]]
    metadata = {"name": name, "resourceVersion": "1", "annotations": annotations}
    return {
        "metadata": metadata | {"labels": {"other": "x"} | dict.fromkeys(labels, "1")},
        "status": {"conditions": conditions},
    }


class NodesApi(SmallApi):
    """`nodes` is what there is; what is asked for of it is written down in `asked`."""

    def __init__(self, directory):
        self.nodes = {}
        self.asked = []
        self.conflicts = 0
        """How many changes are refused, because the node has changed."""
        self.gone = set()
        """Nodes that are listed, and are not there any more when they are changed."""
        self.forbidden = set()
        super().__init__(directory)

    def answer(self, method, path, body):
        self.asked.append(f"{method} {path}")
        path, _, query = path.partition("?")
        if path == NODES:
            return 200, self._page(parse_qs(query))
        name = path.removeprefix(f"{NODES}/").removesuffix("/status")
        if name not in self.nodes or (method == "PATCH" and name in self.gone):
            return 404, {"message": f'nodes "{name}" not found'}
        if name in self.forbidden:
            return 403, {"message": "nodes is forbidden"}
        if method == "PATCH":
            return self._patched(self.nodes[name], path, body)
        return 200, copy.deepcopy(self.nodes[name])

    def _page(self, query):
        """Continued behind the name of the last one."""
        names = sorted(name for name in self.nodes if name > query.get("continue", [""])[0])
        page = names[: int(query["limit"][0])]
        more = {"continue": page[-1]} if len(names) > len(page) else {}
        return {"metadata": more, "items": [copy.deepcopy(self.nodes[name]) for name in page]}

    def _patched(self, there, path, body):
        if path.endswith("/status"):
            assert body == {"status": {"conditions": [{"type": "DevicesUnhealthy", "$patch": "delete"}]}}
            del there["status"]["conditions"][1]
        elif self.conflicts:
            self.conflicts -= 1
            return 409, {"message": "the object has been modified"}
        else:
            merge(there["metadata"], body["metadata"])
        return 200, there


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = NodesApi(tmp_path / "serviceaccount")
    monkeypatch.setattr("devherd.config.api_access.SERVICE_ACCOUNT", server.directory)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    yield server
    server.close()


def clean(*nodes, dry_run=False):
    return labels.run(argparse.Namespace(remove=True, output="text", nodes=list(nodes), dry_run=dry_run))


def test_every_node_is_cleaned_of_what_is_devherds(api, capsys):
    """A page at a time: a node is some tens of KB."""
    api.nodes = {name: node(name) for name in (f"node-{number:03}" for number in range(60))}
    api.nodes["node-007"] = node("node-007", "a/b", "c/d", has_condition=True)
    api.nodes["node-031"] = node("node-031", has_condition=True)
    api.nodes["node-059"] = node("node-059", "a/b")
    wanted = {name: node(name) for name in api.nodes}

    assert clean() == 0

    for one in api.nodes.values():
        one["metadata"]["resourceVersion"] = "1"
    assert api.nodes == wanted
    assert capsys.readouterr().out.splitlines() == [
        "node-007: removed: 2 labels, condition DevicesUnhealthy",
        "node-031: removed: condition DevicesUnhealthy",
        "node-059: removed: 1 label",
    ]
    assert [each for each in api.asked if each.startswith(f"GET {NODES}?")] == [
        f"GET {NODES}?limit=25",
        f"GET {NODES}?limit=25&continue=node-024",
        f"GET {NODES}?limit=25&continue=node-049",
    ]


def test_a_dry_run_changes_nothing(api, capsys):
    """It says what would be."""
    api.nodes = {"a": node("a", "a/b", has_condition=True)}
    before = copy.deepcopy(api.nodes)

    assert clean(dry_run=True) == 0
    assert api.nodes == before
    assert capsys.readouterr().out == "a: would be removed: 1 label, condition DevicesUnhealthy\n"


def test_named_nodes_alone_are_cleaned(api):
    """The others are not even looked at."""
    api.nodes = {name: node(name, "a/b") for name in "abc"}

    assert clean("a", "c") == 0
    assert [name for name, each in api.nodes.items() if "a/b" in each["metadata"]["labels"]] == ["b"]
    assert {each.split()[1] for each in api.asked} == {f"{NODES}/a", f"{NODES}/c"}


def test_a_node_that_others_change_is_looked_at_again(api):
    """The kubelet, for one."""
    api.nodes, api.conflicts = {"a": node("a", "a/b")}, 3

    assert clean() == 0
    assert api.nodes["a"]["metadata"]["labels"] == {"other": "x"}


def test_a_node_that_has_left_the_cluster_is_clean(api, capsys):
    """Between the list and the change."""
    api.nodes, api.gone = {"a": node("a", has_condition=True), "b": node("b", has_condition=True)}, {"a"}

    assert clean() == 0
    assert capsys.readouterr() == ("b: removed: condition DevicesUnhealthy\n", "")


def test_a_node_that_cannot_be_cleaned_keeps_no_other_from_it(api, capsys):
    """It is said, and the exit code is 1: a Job tries again."""
    api.nodes, api.forbidden = {"a": node("a", "a/b"), "b": node("b", "a/b")}, {"a"}

    assert clean() == 1
    out, errors = capsys.readouterr()
    assert out == "b: removed: 1 label\n"
    assert errors == (
        "devherd: cannot clean node a — 403: nodes is forbidden — "
        "give the service account the rights of deploy/kubernetes/clean-nodes\n"
    )


def test_without_a_pods_token_there_is_nobody_to_ask(monkeypatch):
    """On a node's own shell, say."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(UnreachableError, match="run it in a pod"):
        clean()


def test_a_server_that_is_away_is_said(api):
    """With exit code 4."""
    api.close()

    with pytest.raises(UnreachableError, match=r"cannot read the nodes — .* — try again"):
        clean()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (WrittenToNode("a", [], False), ""),
        (WrittenToNode("a", ["x"], False), "1 label"),
        (WrittenToNode("a", ["x", "y"], True), "2 labels, condition DevicesUnhealthy"),
    ],
)
def test_what_is_on_a_node_is_said_in_a_few_words(written, said):
    """Nothing is nothing."""
    assert str(written) == said
