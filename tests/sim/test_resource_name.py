"""Resource names are accepted and refused exactly as the kubelet does."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.text import is_resource_name, resource_name_refusal

ACCEPTED = [
    "example.com/gpu",
    "acme.example/x_y.Z-1",
    "acme/x",
    "a/" + "x" * 63,
    "a" * 243 + "/x",
    "a" * 244 + "/x",
    "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs",
]
REFUSED = [
    "",
    "/",
    "foo",
    "a/",
    "/a",
    "kubernetes.io/x",
    "a.kubernetes.io/x",
    "xkubernetes.io/y",
    "requests.acme.example/x",
    "Acme.example/x",
    "acme.example/-x",
    "acme.example/x-",
    "acme..example/x",
    "-acme/x",
    "acme_example/x",
    "acme.example/" + "x" * 64,
    "a/b/c",
    "a" * 245 + "/x",
    "acme.example/x\n",
    "acme.example/ä",
]


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_name_that_the_kubelet_accepts_is_valid(name):
    """There is nothing to explain."""
    assert is_resource_name(name)
    assert resource_name_refusal(name) is None


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_the_kubelet_refuses_is_explained(name):
    """The explanation quotes the name."""
    assert not is_resource_name(name)
    assert f"`{name}`" in resource_name_refusal(name)


def kubelet_accepts(name: str) -> bool:
    """The kubelet's rule, written down a second time as its source has it: `requests.<name>` is a qualified name."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    prefix, _, last = f"requests.{name}".partition("/")
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    return (
        len(prefix) <= 253
        and re.fullmatch(rf"{label}(\.{label})*", prefix) is not None
        and 0 < len(last) <= 63
        and re.fullmatch(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", last) is not None
    )


@given(st.from_regex(r"[a-zA-Z0-9._/-]{0,20}/?[a-zA-Z0-9._/-]{0,70}", fullmatch=True) | st.text(max_size=12))
def test_any_name_is_judged_as_the_kubelet_judges_it(name):
    """Two wordings of the rule agree on names that are nearly right."""
    assert is_resource_name(name) == kubelet_accepts(name)
