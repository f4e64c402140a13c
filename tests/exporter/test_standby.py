"""What an instance that stands by says over HTTP."""

from http import HTTPStatus

import pytest

from devherd.exporter.standby import standing_by

WHY = "another instance runs here, process 17"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/healthz", HTTPStatus.OK, "ok\n"),
        ("/readyz", HTTPStatus.OK, f"standing by: {WHY}\n"),
        ("/api/v1/inventory", HTTPStatus.SERVICE_UNAVAILABLE, f"standing by: {WHY}\n"),
        ("/", HTTPStatus.SERVICE_UNAVAILABLE, f"standing by: {WHY}\n"),
    ],
)
def test_it_is_alive_and_ready_and_has_nothing_else_to_show(path, status, body):
    """What it waits for is said to people and programs alike."""
    answer = standing_by(path, WHY)

    assert (answer.status, answer.body.decode()) == (status, body)


def test_one_that_still_rehearses_is_alive_and_not_ready():
    """The kubelet must not start it again, and the roll-out must not end the other one."""
    said = f"not ready to take over: the rehearsal is not done; {WHY}\n"
    answers = [standing_by(path, WHY, is_ready=False) for path in ("/healthz", "/readyz", "/")]

    assert [(answer.status, answer.body.decode()) for answer in answers] == [
        (HTTPStatus.OK, "ok\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, said),
        (HTTPStatus.SERVICE_UNAVAILABLE, said),
    ]


def test_scrapers_find_its_version_and_nothing_of_the_other_ones_devices():
    """No target is down in a roll-out, and no series is there twice."""
    answer = standing_by("/metrics", WHY)

    names = {line.split("{")[0] for line in answer.body.decode().splitlines() if not line.startswith("#")}
    assert (answer.status, names) == (HTTPStatus.OK, {"devherd_build_info"})
