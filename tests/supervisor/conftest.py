"""Instances of the supervisor, each in a directory of its own and ended after its test."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scratch
from instance import Instance


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short, since a control socket's path must be below 108 bytes."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def make_instance(directory: Path) -> Iterator[Callable[..., Instance]]:
    """Makes instances that are ended after the test."""
    made: list[Instance] = []

    def make(**names: str) -> Instance:
        made.append(Instance(directory, **names))
        return made[-1]

    yield make
    for instance in made:
        instance.clean_up()


@pytest.fixture
def instance(make_instance: Callable[..., Instance]) -> Instance:
    """An instance with a run directory and a kubelet directory of its own."""
    return make_instance()
