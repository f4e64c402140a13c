"""A small API server for each test."""

import pytest
from client import Client
from objects_api import ObjectsApi
from publishing_part import Publishing
from slices_api import SlicesApi
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


@pytest.fixture
def client(tmp_path, objects_api):
    """The process, not started."""
    client = Client(tmp_path / "run", objects_api)
    yield client
    client.stop()
    assert "Traceback" not in client.log.read_text()


@pytest.fixture
def server(tmp_path):
    """An API server with slices."""
    made = SlicesApi(tmp_path / "serviceaccount")
    yield made
    made.close()


@pytest.fixture
def publishing(tmp_path, server):
    """A node with an AMD GPU whose drivers are not registered yet."""
    made = Publishing(tmp_path / "run", server)
    made.node.write()
    yield made
    made.api.close()
