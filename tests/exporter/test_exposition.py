"""Metric families as text: what Prometheus' own parsers read back is what was put in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from devherd.exporter.exposition import Family, only, openmetrics, prefers_openmetrics, text

PROMETHEUS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
_LABELS = st.dictionaries(st.from_regex(r"\A[a-z][a-z_]{0,5}\Z"), st.text(st.characters(codec="utf-8"), max_size=9))
_VALUES = st.floats(allow_nan=False)


def families(samples):
    """A gauge and a counter with these samples."""
    gauge, counter = Family("a_gauge", 'A "gauge" \\ of\ntwo lines.'), Family("a_counter", "A counter.", "counter")
    for labels, value in samples:
        gauge.add(value, **labels)
        counter.add(abs(value) if math.isfinite(value) else 0.0, **labels)
    return [gauge, counter]


@pytest.mark.parametrize(("write", "parse"), [(text, parse_text), (openmetrics, parse_openmetrics)])
@given(samples=st.lists(st.tuples(_LABELS, _VALUES), max_size=4, unique_by=lambda each: tuple(sorted(each[0].items()))))
def test_what_is_written_is_what_prometheus_reads(write, parse, samples):
    """Labels with quotes, backslashes and line ends; values of every size; help texts of several lines."""
    made = families(samples)
    read = {family.name: family for family in parse(write(made))}

    assert set(read) == {"a_gauge", "a_counter"}
    for family in made:
        assert read[family.name].type == family.type
        assert read[family.name].documentation == family.help
        assert [(s.name, s.labels, s.value) for s in read[family.name].samples] == [
            (family.name + suffix, dict(labels), value) for suffix, labels, value in family.samples
        ]


@pytest.mark.parametrize(
    ("accept", "openmetrics_first"),
    [
        ("", False),
        ("*/*", False),
        ("text/html, text/plain;q=0.5", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text; version=9.0.0, text/plain", False),
        ("text/plain, application/openmetrics-text;q=0.3", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        (PROMETHEUS, True),
    ],
)
def test_the_scraper_gets_the_format_that_it_ranks_first(accept, openmetrics_first):
    """Among them what Prometheus 3 asks with."""
    assert prefers_openmetrics(accept) is openmetrics_first


def test_a_query_by_name_gets_these_samples_alone():
    """`/metrics?name[]=…` names samples as they are written."""
    gauge, counter = families([({}, 1.0)])
    histogram = Family("a_time", "A time.", "histogram", [("_sum", {}, 3.0), ("_count", {}, 1.0)])

    found = list(only([gauge, counter, histogram], {"a_counter_total", "a_time_count", "other"}))

    assert [(family.name, [suffix for suffix, *_ in family.samples]) for family in found] == [
        ("a_counter", ["_total"]),
        ("a_time", ["_count"]),
    ]
