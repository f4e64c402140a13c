"""Clients that each want a page of their own: what they can ask for is bounded, and the plain pages are made."""

import asyncio
import threading
from collections import Counter
from functools import partial
from http import HTTPStatus
from itertools import islice
from unittest import mock

import pytest

from devherd.exporter import application as application_module
from devherd.exporter.application import MOST_QUEUED, Application
from devherd.exporter.server import Request
from devherd.exporter.status_page import page as page_module
from devherd.instance.read import read_instance
from devherd.kubelet.pod_resources import PodResources
from devherd.process import Heartbeats
from devherd.settings import Settings

MANY = 30


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/", "from={}"),
        ("/", "filter={}"),
        ("/", "resource={}"),
        ("/metrics", "name[]={}"),
        ("/api/v1/inventory", "resource={}"),
    ],
)
async def test_many_different_views_at_once_are_refused_and_the_plain_page_is_made(tmp_path, path, query):
    """Also where all came while the kubelet was asked, when none of them was in the queue."""
    pod_resources = mock.create_autospec(PodResources, instance=True)
    pod_resources.allocations.side_effect = partial(asyncio.sleep, 0.01)
    application = Application(Settings(run_dir=tmp_path), Heartbeats(2), pod_resources)
    may_end = threading.Event()

    def slow(settings, heartbeats):
        may_end.wait(20)
        return read_instance(settings, heartbeats)

    with (
        mock.patch.object(application_module, "read_instance", side_effect=slow),
        mock.patch.object(page_module, "read_instance", side_effect=slow),
    ):
        asked = [
            asyncio.create_task(application.answer(Request("GET", path, query.format(number))))
            for number in range(1, MANY + 1)
        ]
        plain = asyncio.create_task(application.answer(Request("GET", path)))
        async with asyncio.timeout(15):
            for refused in islice(asyncio.as_completed(asked), MANY - MOST_QUEUED - 1):
                assert (await refused).status is HTTPStatus.SERVICE_UNAVAILABLE
        may_end.set()
        statuses = Counter(answer.status for answer in await asyncio.gather(*asked))
        assert (await plain).status is HTTPStatus.OK
    assert statuses[HTTPStatus.OK] <= MOST_QUEUED + 1
    assert statuses == {
        HTTPStatus.OK: statuses[HTTPStatus.OK],
        HTTPStatus.SERVICE_UNAVAILABLE: MANY - statuses[HTTPStatus.OK],
    }
