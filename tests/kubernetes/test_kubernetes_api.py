"""The client of the API server: what it sends, and what becomes of failures."""

import pytest

from devherd.config.api_access import ApiAccess
from devherd.kubernetes.api import Api, ApiError


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
