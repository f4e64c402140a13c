"""The client of the API server: what it sends, and what becomes of failures."""

import urllib.parse

import pytest

from devherd.api_server import Api, ApiError
from devherd.config.api_access import ApiAccess


@pytest.fixture
def api(api_server):
    api = Api(api_server.access)
    yield api
    api.close()


def test_objects_are_got_made_and_merged(api, api_server):
    """Over one connection."""
    pod = api.get("/api/v1/namespaces/a/pods/b")
    api.create("/api/v1/namespaces/a/events", {"kind": "Event"})
    api.patch("/api/v1/nodes/n/status", {"status": {}})

    assert pod["metadata"] == {"namespace": "a", "name": "b", "uid": "uid-of-b"}
    assert api_server.events == [{"kind": "Event"}]
    assert api_server.patches == [("/api/v1/nodes/n/status", {"status": {}})]


def test_a_token_that_is_renewed_is_used(api, api_server):
    """The kubelet renews it each hour."""
    api.get("/x/y/z")
    (api_server.directory / "token").write_text("second\n")
    api.get("/x/y/z")

    assert api_server.tokens == ["first", "second"]


def test_a_refusal_is_an_error_with_the_servers_own_words(api, api_server):
    """Its status says what to do about it."""
    api_server.refusal = (403, "events is forbidden")

    with pytest.raises(ApiError, match="403: events is forbidden") as caught:
        api.create("/api/v1/namespaces/a/events", {})
    assert caught.value.status == 403


@pytest.mark.parametrize("said", ["a\nb", "<html>\r\n <b>502</b>\n</html>\n", " - a\n\t- b"])
def test_an_error_is_one_line(said):
    """It stands in a line of the log, and in a cell of a table."""
    assert str(ApiError(502, said)) == f"502: {' '.join(said.split())}"


@pytest.mark.parametrize("said", [b'"upstream error"', b"[1]", b"null", b"<html>502</html>"])
@pytest.mark.parametrize("status", [502, 200])
def test_an_answer_that_is_no_object_is_an_error(api, api_server, said, status):
    """Defect: a JSON text of a proxy ended the process."""
    api_server.raw = said
    if status != 200:
        api_server.refusal = (status, "")
    with pytest.raises(ApiError) as caught:
        api.get("/api/v1/nodes/node-1")
    assert (caught.value.status, str(caught.value)) == (status, f"{status}: {said.decode()}")


def test_a_connection_that_the_server_has_closed_is_opened_again(api, api_server):
    """It closes those on which nothing is said for long."""
    api_server.is_closing = True
    api.get("/x/y/z")

    assert api.get("/x/y/z")["metadata"]["name"] == "z"


def test_a_server_that_is_away_is_an_error_without_a_status(api, api_server):
    """It is asked again later."""
    api_server.close()

    with pytest.raises(ApiError) as caught:
        api.get("/x/y/z")
    assert caught.value.status == 0


def test_a_server_with_another_certificate_is_told_nothing(api, api_server):
    """Not even the token."""
    api_server._make_certificate()

    with pytest.raises(ApiError, match="certificate verify failed"):
        api.get("/x/y/z")
    assert api_server.tokens == []


def test_there_is_access_in_a_pod_with_a_token_only(api_server, monkeypatch):
    """Elsewhere nobody starts a process for it."""
    monkeypatch.setattr("devherd.config.api_access.SERVICE_ACCOUNT", api_server.directory)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    outside = ApiAccess.of_this_pod()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    inside = ApiAccess.of_this_pod()
    (api_server.directory / "token").unlink()

    assert outside is None
    assert (inside.host, inside.port) == ("10.0.0.1", 6443)
    assert ApiAccess.of_this_pod() is None


def test_an_answer_of_brackets_alone_is_an_error(api, api_server):
    """As deep as Python follows nobody."""
    api_server.raw = b"[" * 1_000_000

    with pytest.raises(ApiError, match=r"^200: \[+$"):
        api.get("/x/y/z")


@pytest.mark.parametrize("said", [b"{}", b'{"error": "log in first"}', b'{"metadata": null}'])
def test_an_object_that_is_none_of_kubernetes_is_an_error(api, api_server, said):
    """Of a proxy: nothing is looked for in it."""
    api_server.raw = said

    with pytest.raises(ApiError) as caught:
        api.get("/api/v1/nodes/node-1")
    assert str(caught.value) == f"200: not a Kubernetes object: {said.decode()}"


@pytest.mark.parametrize(
    ("said", "seconds"), [("7", 7), ("", None), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("9" * 400, 3600), ("٣", None)]
)
def test_an_error_has_the_time_after_which_the_server_wants_to_be_asked_again(api, api_server, said, seconds):
    """With 429, as of priority and fairness; days are no time to wait."""
    api_server.refusal = (429, "too many requests")
    api_server.retry_after = said.encode().decode("latin-1")

    with pytest.raises(ApiError) as caught:
        api.get("/x/y/z")
    assert caught.value.retry_after_seconds == seconds


def test_a_refused_token_is_read_again_and_the_call_repeated_once(api, api_server):
    """It may have been renewed between: whoever rotates it removes the old one at once."""

    def answer(method, path, body):
        (api_server.directory / "token").write_text("second")
        return (401, {"message": "Unauthorized"}) if api_server.tokens[-1] == "first" else (200, {"metadata": {}})

    api_server.answer = answer
    assert api.get("/x/y/z") == {"metadata": {}}
    api_server.refusal, api_server.tokens = (401, "Unauthorized"), []
    api_server.answer = lambda *_: (401, {"message": "Unauthorized"})
    with pytest.raises(ApiError, match="401: Unauthorized"):
        api.get("/x/y/z")
    assert api_server.tokens == ["second", "second"]


def test_an_object_is_removed_only_if_it_is_the_one_that_was_seen(api, api_server):
    """Else what somebody else has made meanwhile would be removed. What is gone already is no error."""
    asked = []

    def answer(*call):
        asked.append(call)
        return 404, {"message": "not found"}

    api_server.answer = answer
    api.delete("/apis/a/b", uid="u-1", resourceVersion="7")
    preconditions = {"uid": "u-1", "resourceVersion": "7"}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    assert asked == [("DELETE", "/apis/a/b", body)]


def in_pages(api_server, names, forgets_at=()):
    """Answers a list in pages of what is asked for; returns the list of what was asked."""
    asked, forgotten = [], list(forgets_at)

    def answer(method, path, body):
        query = dict(urllib.parse.parse_qsl(path.partition("?")[2]))
        asked.append(query)
        first = int(query.get("continue", 0))
        if first in forgotten:
            forgotten.remove(first)
            return 410, {"message": "the provided continue parameter is too old"}
        last = first + int(query["limit"])
        more = {"continue": str(last)} if last < len(names) else {}
        items = [{"metadata": {"name": name}} for name in names[first:last]]
        return 200, {"metadata": {"resourceVersion": "42", **more}, "items": items}

    api_server.answer = answer
    return asked


def test_a_collection_is_read_in_pages(api, api_server):
    """A large one does not fit into an answer. A token of the server may have any characters."""
    asked = in_pages(api_server, "abcde")
    found, version = api.collection("/apis/x", lambda one: one["metadata"]["name"], page=2, fieldSelector="a=b")

    assert (found, version) == (list("abcde"), "42")
    assert asked == [
        {"fieldSelector": "a=b", "limit": "2"},
        {"fieldSelector": "a=b", "limit": "2", "continue": "2"},
        {"fieldSelector": "a=b", "limit": "2", "continue": "4"},
    ]


def test_a_collection_whose_beginning_is_forgotten_is_read_anew(api, api_server):
    """410 of a later page: nothing is there twice."""
    in_pages(api_server, "abcde", forgets_at=[4, 2])
    assert api.collection("/apis/x", lambda one: one["metadata"]["name"], page=2)[0] == list("abcde")
    in_pages(api_server, "abcde", forgets_at=[2] * 10)
    with pytest.raises(ApiError) as caught:
        api.collection("/apis/x", lambda one: one["metadata"]["name"], page=2)
    assert caught.value.status == 410


def test_a_client_that_remembers_no_outage_asks_at_each_call(api_server):
    """Of a claim that is prepared: the server may be back after a moment."""
    api = Api(api_server.access, remembers_outages=False)
    api_server.loses_answers = True
    with pytest.raises(ApiError):
        api.get("/x/y/z")
    api_server.loses_answers = False
    assert api.get("/x/y/z")["metadata"]["name"] == "z"
    api.close()
