"""What `ps` shows of the children, which are forks of one process."""

from pathlib import Path

import pytest
from instance import until

from devherd.fork import title_of
from devherd.settings import Settings


def test_every_child_is_seen_as_what_it_is(instance):
    """In `ps` and, shorter, in `top`; the supervisor keeps its command line."""
    instance.up()
    names = ["scanner", "exporter", "resource:example.com_first"]
    pids = [instance.running(name).pid for name in names]

    def seen(file):
        return [Path(f"/proc/{pid}/{file}").read_text().strip("\n\0") for pid in pids]

    titles = ["devherd: scanner", "devherd: exporter", "devherd: resource example.com/first"]
    until(lambda: seen("cmdline") == titles, "the titles")
    until(lambda: seen("comm") == ["scanner", "exporter", "resource:exampl"], "the short names")
    assert "tiny_herd.py" in Path(f"/proc/{instance.process.pid}/cmdline").read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "resource:fpga.intel.com_af-695.d84.aVK_x",
            "devherd: resource fpga.intel.com/af-695.d84.aVK_x --run-dir=/tmp/a",
        ),
        ("scanner", "devherd: scanner --run-dir=/tmp/a"),
        ("first scan", "devherd: first scan --run-dir=/tmp/a"),
    ],
)
def test_a_title_names_the_resource_and_the_options_of_the_instance(name, expected):
    """So that two instances of one machine can be told apart."""
    assert title_of(name, Settings(given_options=(("run_dir", "/tmp/a"),))) == expected
