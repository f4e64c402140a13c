"""The Grafana dashboard against Grafana's own description of dashboards: the classes of its Foundation SDK.

They are generated from Grafana's schemas, and leave out what these do not have: what is lost on the way through them is
a key that Grafana would ignore.
"""

import copy
import json
import typing

import pytest
from monitoring import DEPLOY
from not_tested import not_tested
from pydantic import ConfigDict, TypeAdapter, ValidationError

DASHBOARD = json.loads((DEPLOY / "grafana" / "devherd.json").read_text())
OF_PROMETHEUS = {"titleFormat", "textFormat", "step", "definition"}
"""Keys of Prometheus' annotations and variables, which the schema leaves to each data source."""


@pytest.fixture(scope="module")
def decoded():
    """Decodes a dashboard."""
    try:
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError:
        not_tested("no grafana-foundation-sdk; make build")
    register_default_plugins()
    return Dashboard.from_json


def faults(dashboard, decode):
    """Every key that Grafana does not have, and every value that is not of its type."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    made = decode(dashboard)
    return [*_lost(dashboard, json.loads(JSONEncoder().encode(made)), ""), *_mistyped(made, "")]


def _lost(given, kept, place):
    if isinstance(given, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{place}.{key}")
            elif key not in OF_PROMETHEUS:
                yield f"{place}.{key}"
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(one, other, f"{place}[{number}]")
    elif given != kept:
        yield place


def _mistyped(value, place):
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _mistyped(each, f"{place}[{number}]")
    elif hasattr(value, "from_json"):
        for name, hint in typing.get_type_hints(type(value)).items():
            yield from _of_another_type(getattr(value, name), hint, f"{place}.{name}")
            yield from _mistyped(getattr(value, name), f"{place}.{name}")


def _of_another_type(value, hint, place):
    if isinstance(value, str | int | float | bool | None):
        try:
            TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_json(
                json.dumps(value), strict=True
            )
        except ValidationError:
            yield f"{place}: {value!r}"


def test_every_key_of_the_dashboard_is_grafanas_and_every_value_of_its_type(decoded):
    """Grafana ignores what it does not know: a misspelt key changes nothing and is not reported."""
    assert faults(DASHBOARD, decoded) == []


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("panels", 1, "gridPoss"), {}, ".panels[1].gridPoss"),
        (("panels", 1, "options", "grafMode"), "none", ".panels[1].options.grafMode"),
        (("panels", 1, "options", "graphMode"), "nothing", ".panels[1].options.graph_mode: 'nothing'"),
        (("panels", 1, "gridPos", "h"), "4", ".panels[1].grid_pos.h: '4'"),
        (("panels", 1, "targets", 0, "exprr"), "up", ".panels[1].targets[0].exprr"),
        (("templating", "list", 0, "multy"), True, ".templating.list[0].multy"),
    ],
)
def test_a_key_or_value_that_grafana_does_not_have_is_found(decoded, path, value, fault):
    """At every depth: of the dashboard, a panel, its options, a query, a variable."""
    *places, key = path
    place = wrong = copy.deepcopy(DASHBOARD)
    for each in places:
        place = place[each]
    place[key] = value

    assert faults(wrong, decoded) == [fault]
