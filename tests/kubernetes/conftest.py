"""A small API server for each test."""

import pytest
from small_api import SmallApi


@pytest.fixture
def api_server(tmp_path):
    server = SmallApi(tmp_path / "serviceaccount")
    yield server
    server.close()
