"""Reference counts that stand still: what forked processes run stays shared."""

import re
import subprocess
import sys

from instance import until

KNOWS_IMMORTAL_OBJECTS = sys.version_info[:2] in {(3, 12), (3, 13)}

CODE = """
import gc, sys
from devherd import _native

class Kind:
    def method(self):
        def inner(): return (1, [2])
        return inner() if self.size is None else "a text that is no name"
    size = property(lambda self: None)

def function(): return 1
pair = (Kind, [])
mortal = [Kind()]
watched = [function, function.__code__, Kind, Kind.method.__code__, pair, gc, len, vars(gc), gc.__spec__, Kind.size]
watched += [constant for constant in Kind.method.__code__.co_consts if hasattr(constant, "co_code")]
watched += [constant for constant in Kind.method.__code__.co_consts if constant == "a text that is no name"]
assert len(watched) == 12
made = _native.make_immortal(gc.get_objects())
counts = [sys.getrefcount(each) for each in watched]
more = [list(watched) for _ in range(10)]
stands_still = [now == before for now, before in zip([sys.getrefcount(each) for each in watched], counts)]
assert sys.getrefcount(mortal) < 10
del more, watched
code = function.__code__
del function, pair
gc.collect(); gc.freeze()
print(made > 1000, *stands_still, Kind().method(), eval(code), _native.make_immortal(gc.get_objects()) < 1000)
"""


def test_functions_code_types_tuples_and_modules_are_counted_no_more_where_python_knows_that():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False)

    said = " ".join([str(KNOWS_IMMORTAL_OBJECTS)] * 13)
    assert (run.returncode, run.stdout.strip()) == (0, f"{said} (1, [2]) 1 True"), run.stderr


def test_children_share_the_code_that_the_supervisor_has_made_immortal_where_python_knows_that(instance):
    """A count that moves makes a child copy the page: 6 MB of a node with one resource, 30 MB of one with 16."""
    instance.order("count.exporter")
    instance.up()
    until(lambda: "references to a function: " in instance.stderr(), "a count")
    [count] = map(int, re.findall(r"references to a function: (\d+)\n", instance.stderr()))
    assert (count > 1 << 31) == KNOWS_IMMORTAL_OBJECTS
