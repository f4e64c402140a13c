"""The order of tests: what may take long comes first, on as many workers as there are files of it."""

from itertools import islice


def timeout(item):
    """The seconds that a test may take by a mark of its own, otherwise 0."""
    return max((mark.args[0] for mark in item.iter_markers("timeout")), default=0)


def shares(count, workers):
    """How many of the tests pytest-xdist's worksteal gives each worker at the beginning, in their order."""
    for left in range(workers, 0, -1):
        yield count // left
        count -= count // left


def dealt(items, workers):
    """The items, so that the share of each worker begins with files of long tests, the longest first.

    In one share they would be played one after the other, however many workers had nothing to do. A file's tests stay
    together: they wait for the same thing to be built. Nothing else changes its place to others.
    """
    long = sorted((item for item in items if timeout(item)), key=lambda item: -timeout(item))
    files = {}
    for item in long:
        files.setdefault(item.path, []).append(item)
    hands = [[] for _ in range(workers)]
    for number, file in enumerate(files.values()):
        hands[number % workers] += file
    sizes = list(shares(len(items), workers))
    over = [item for hand, size in zip(hands, sizes, strict=True) for item in hand[size:]]
    others = iter([*over, *(item for item in items if not timeout(item))])
    return [
        item
        for hand, size in zip(hands, sizes, strict=True)
        for item in [*hand[:size], *islice(others, max(0, size - len(hand)))]
    ]
