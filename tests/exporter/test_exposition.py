"""Metric families as text: what Prometheus' own parsers read back is what was put in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from devherd.exporter.application import prefers_openmetrics
from devherd.exporter.exposition import Lines, Writer, line_of, only, sample_name

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
    gauge = GaugeMetricFamily("a_gauge", 'A "gauge" \\ of\ntwo lines.', labels=())
    counter = CounterMetricFamily("a_counter", "A counter.", labels=())
    for labels, value in samples:
        gauge.add_sample("a_gauge", labels, value)
        counter.add_sample("a_counter_total", labels, abs(value) if math.isfinite(value) else 0.0)
    return [gauge, counter]


def read(page, as_openmetrics):
    """The families of a page, as Prometheus' own parser of the format reads them."""
    parse = parse_openmetrics if as_openmetrics else parse_text
    return {family.name: family for family in parse(page.decode())}


@pytest.mark.parametrize("as_openmetrics", [False, True])
@given(samples=st.lists(st.tuples(_LABELS, _VALUES), max_size=4, unique_by=lambda each: tuple(sorted(each[0].items()))))
def test_what_is_written_is_what_prometheus_reads(as_openmetrics, samples):
    """Labels with quotes, backslashes and line ends; values of every size; help texts of several lines."""
    made = families(samples)
    found = read(Writer(as_openmetrics=as_openmetrics).page(made), as_openmetrics)

    assert set(found) == {"a_gauge", "a_counter"}
    for family in made:
        assert found[family.name].type == family.type
        assert found[family.name].documentation == family.documentation
        assert [each[:3] for each in found[family.name].samples] == [each[:3] for each in family.samples]


_TEXT = st.text(st.sampled_from('ab \\"\n\r\u2028é😀{}=,#%') | st.characters(codec="utf-8"), max_size=6)
_ROWS = st.lists(
    st.tuples(st.tuples(_TEXT, _TEXT, _TEXT), st.integers(-3, 3) | st.booleans() | st.floats()), max_size=3
)


@pytest.mark.parametrize("as_openmetrics", [False, True])
@pytest.mark.parametrize("kind", [GaugeMetricFamily, CounterMetricFamily])
@given(rows=_ROWS)
def test_lines_are_byte_for_byte_what_the_library_writes(kind, as_openmetrics, rows):
    """Those of devices are not written by it: whatever their labels and values are."""
    labels = ("resource_name", "device_id", "a_kind")
    written, empty = kind("a_name", "Some \\ help\n.", labels=labels), kind("a_name", "Some \\ help\n.", labels=labels)
    for values, value in rows:
        written.add_metric(values, value)
    line = line_of(sample_name(empty.name, empty.type), labels)
    lines = Lines(empty, [line(values, value) for values, value in rows])

    writer = Writer(as_openmetrics=as_openmetrics)
    assert writer.page([lines]) == writer.page([written])


@pytest.mark.parametrize("as_openmetrics", [False, True])
def test_a_page_is_that_of_a_new_writer_whatever_was_written_before(as_openmetrics):
    """A family that has not changed keeps its text; one that changed, came or went does not."""
    writer = Writer(as_openmetrics=as_openmetrics)
    pages = [
        families([({"a": "b"}, 1.0)]),
        families([({"a": "b"}, 1.0)]),
        families([({"a": "c"}, 2.0)]),
        [],
        families([]),
    ]

    for page in pages:
        assert writer.page(page) == Writer(as_openmetrics=as_openmetrics).page(page)


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
    histogram = HistogramMetricFamily("a_time", "A time.", [("+Inf", 1.0)], 3.0)
    lines = Lines(CounterMetricFamily("of_lines", "Lines."), ["of_lines_total 1.0\n"])
    unasked = [Lines(GaugeMetricFamily("other", "No lines."), []), Lines(GaugeMetricFamily("of_lines", "."), ["x"])]

    names = {"a_counter_total", "a_time_count", "other", "of_lines_total"}
    *found, last = only([gauge, counter, histogram, *unasked, lines], names)
    assert last is lines

    assert [(family.name, [sample.name for sample in family.samples]) for family in found] == [
        ("a_counter", ["a_counter_total"]),
        ("a_time", ["a_time_count"]),
    ]
