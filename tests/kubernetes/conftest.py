"""A small API server for each test."""

import pytest
from objects_api import ObjectsApi
from small_api import SmallApi


@pytest.fixture
def api_server(tmp_path):
    server = SmallApi(tmp_path / "serviceaccount")
    yield server
    server.close()


@pytest.fixture
def objects_api(tmp_path):
    server = ObjectsApi(tmp_path / "serviceaccount")
    yield server
    server.close()
