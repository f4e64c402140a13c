"""Kubeconfig files: what is read of them, and what is refused."""

import base64
import json
from pathlib import Path

import pytest

from devherd.config import kubeconfig
from devherd.config.errors import ConfigError

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
PKI = "/var/lib/kubelet/pki/kubelet-client-current.pem"
OF_KUBEADM = f"""\
apiVersion: v1
kind: Config
preferences: {{}}
current-context: system:node:node-1@kubernetes
clusters:
- name: kubernetes
  cluster:
    certificate-authority-data: {base64.b64encode(CERTIFICATE.encode()).decode()}
    server: https://10.0.0.1:6443
contexts:
- name: system:node:node-1@kubernetes
  context: {{cluster: kubernetes, user: system:node:node-1, namespace: devherd}}
users:
- name: system:node:node-1
  user:
    client-certificate: {PKI}
    client-key: {PKI}
"""
"""As kubeadm writes /etc/kubernetes/kubelet.conf:
<https://kubernetes.io/docs/reference/setup-tools/kubeadm/implementation-details/>.
"""


def read(tmp_path, text):
    file = tmp_path / "kubelet.conf"
    file.write_text(text)
    return kubeconfig.read(file)


def test_the_kubelets_own_file_names_server_certificates_and_namespace(tmp_path):
    """The client's certificate stays a path, because the kubelet renews it."""
    access = read(tmp_path, OF_KUBEADM)

    assert (access.host, access.port, access.path) == ("10.0.0.1", 6443, "")
    assert access.ca == CERTIFICATE
    assert access.certificate_file == access.key_file == Path(PKI)
    assert access.namespace() == "devherd"
    assert access.bearer() == ""
    assert Path(PKI).parent in access.directories()


def test_paths_are_relative_to_the_file(tmp_path):
    """As kubectl reads them; a token file is read each time, a proxy's path begins every path."""
    content = OF_KUBEADM.replace("https://10.0.0.1:6443", "https://rancher.example.com/k8s/clusters/c-1/")
    content = content.replace(f"client-certificate: {PKI}", "tokenFile: token").replace(f"client-key: {PKI}", "x: 1")
    access = read(tmp_path, content)
    (tmp_path / "token").write_text("first\n")

    assert (access.host, access.port, access.path) == ("rancher.example.com", 443, "/k8s/clusters/c-1")
    assert access.bearer() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.bearer() == "second"


@pytest.mark.parametrize(
    ("before", "after", "place", "told"),
    [
        ("current-context: system:node:node-1@kubernetes", "current-context: ''", "4:18", "no context is chosen"),
        ("current-context: system", "current-context: other", "4:18", "`contexts` has no entry `other:node"),
        ("cluster: kubernetes,", "cluster: away,", "12:22", "`clusters` has no entry `away`"),
        ("user: system:node:node-1,", "user: nobody,", "12:40", "`users` has no entry `nobody`"),
        ("https://", "http://", "9:13", "is not the address of an API server"),
        ("10.0.0.1:6443", "10.0.0.1:http", "9:13", "has no valid port"),
        ("    server:", "    insecure-skip-tls-verify: true\n    server:", "9:31", "`insecure-skip-tls-verify` is not"),
        ("    server:", "    proxy-url: socks5://p\n    server:", "9:16", "`proxy-url` is not supported"),
        (f"client-key: {PKI}", "exec: {command: aws}", "17:11", "devherd runs no credential plugin"),
        (f"client-key: {PKI}", "as: somebody", "17:9", "`as` is not supported"),
        (f"client-key: {PKI}", "x: 1", "16:5", "the client certificate has no key"),
        (f"client-certificate: {PKI}", "x: 1", "16:5", "the user has no credentials"),
        ("certificate-authority-data: ", "certificate-authority-data: '%'  # ", "8:33", "is not a PEM text in base64"),
        ("contexts:", "contexts: [", "", "bad kubeconfig in"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_place(tmp_path, before, after, place, told):
    """With line and column; a secret is never shown."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, OF_KUBEADM.replace(before, after))

    text = str(caught.value)
    assert told in text
    assert f"kubelet.conf:{place}" in text


def test_what_json_says_is_read_too(tmp_path):
    """YAML is a superset; tools write both."""
    content = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://[fd00::1]:6443", "tls-server-name": "kubernetes"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    access = read(tmp_path, json.dumps(content))

    assert (access.host, access.server_name, access.bearer()) == ("fd00::1", "kubernetes", "secret")
