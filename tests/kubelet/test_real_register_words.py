"""The kubelet's own words for what it does not register: devherd shows them as they are."""

import pytest
from raw_plugin import RawPlugin, register
from resource_child import eventually


@pytest.fixture
def kubelet(child_node):
    """A kubelet without any plugin."""
    child_node.kubelet.start(plugins_registry=True)
    return child_node.kubelet


@pytest.fixture
def plugin(kubelet):
    """A plugin at raw.sock."""
    plugin = RawPlugin(kubelet.plugins / "raw.sock")
    yield plugin
    plugin.stop()


@pytest.mark.parametrize(
    "name",
    [
        "foo",
        "kubernetes.io/x",
        "xkubernetes.io/y",
        "requests.acme.example/x",
        "Acme.example/x",
        "acme.example/-x",
        "a/b/c",
        f"acme.example/{'n' * 64}",
    ],
)
def test_a_name_that_is_no_extended_resource_is_refused(kubelet, plugin, name):
    """The same names that `config check` refuses."""
    assert register(kubelet.plugins, "raw.sock", name) == f'UNKNOWN: the ResourceName "{name}" is invalid'
    assert kubelet.registrations(name) == 1  # counted before it is looked at
    assert kubelet.capacity(name) is None


def test_another_version_is_refused_before_the_name_is_looked_at(kubelet, plugin):
    """There is one version."""
    words = 'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'
    assert register(kubelet.plugins, "raw.sock", "foo", version="v1") == f"UNKNOWN: {words}"


def test_a_failing_options_call_fails_the_registration(kubelet, plugin):
    """The kubelet asks within Register."""
    plugin.options_error = "not today"
    words = "failed to get device plugin options: rpc error: code = Internal desc = not today"
    assert register(kubelet.plugins, "raw.sock", "example.com/raw") == f"UNKNOWN: {words}"
    plugin.options_error = ""
    assert register(kubelet.plugins, "raw.sock", "example.com/raw") == ""


def test_a_socket_that_nobody_serves_is_dialled_for_ten_seconds(kubelet):
    """Why devherd waits longer than that for the answer."""
    words = "failed to dial device plugin: context deadline exceeded"
    assert register(kubelet.plugins, "nobody.sock", "example.com/raw") == f"UNKNOWN: {words}"


def test_a_plugin_in_the_registry_is_found_told_and_forgotten(kubelet):
    """The other way to register: the kubelet watches the directory."""
    socket = kubelet.directory / "plugins_registry" / "raw.sock"
    plugin = RawPlugin(socket)
    plugin.send("a", "b")
    eventually(lambda: kubelet.capacity("example.com/raw") == (2, 2))
    eventually(lambda: plugin.told)  # the kubelet lists the devices first and reports its outcome afterwards
    assert plugin.told == [(True, "")]
    assert kubelet.registrations("example.com/raw") == 0  # Register was not called
    socket.unlink()
    eventually(lambda: kubelet.capacity("example.com/raw") == (2, 0))
    plugin.stop()


@pytest.mark.parametrize(
    ("resource", "versions", "words"),
    [
        ("example.com/raw", ["v1"], "manager version, v1beta1, is not among plugin supported versions [v1]"),
        ("foo", ["v1beta1"], 'invalid name of device plugin socket: the ResourceName "foo" is invalid'),
    ],
)
def test_a_plugin_in_the_registry_is_told_why_it_is_refused(kubelet, resource, versions, words):
    """By a call of the kubelet's."""
    plugin = RawPlugin(kubelet.directory / "plugins_registry" / "raw.sock", resource=resource, versions=versions)
    told = eventually(lambda: plugin.told and plugin.told[0])
    assert told[0] is False
    assert words in told[1]
    plugin.stop()
