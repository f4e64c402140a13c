"""What the environment chooses of the real cluster, of which only `make cluster` has one: a wrong choice is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REAL = Path(__file__).with_name("real")


def collected(**environment):
    """What pytest says of the tests there, and its exit code."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--collect-only", "-p", "no:cacheprovider", REAL]
    known = {name: value for name, value in os.environ.items() if not name.startswith(("DEVHERD_TEST_", "PYTEST_"))}
    environment = known | {"DEVHERD_TEST_REAL_CLUSTER": "1"} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variable", "wrong", "known"),
    [
        ("DEVHERD_TEST_CGROUP_DRIVER", "sytemd", "cgroupfs or systemd"),
        ("DEVHERD_TEST_CONTAINERD", "1.7", "2.0"),
    ],
)
def test_a_choice_that_there_is_not_is_refused(variable, wrong, known):
    """Defect: the tests ran with cgroupfs, and said that they had passed."""
    code, said = collected(**{variable: wrong})

    assert code == pytest.ExitCode.USAGE_ERROR, said
    assert f"{variable}: {wrong} — there is no such choice" in said
    assert f"set it to {known}, or leave it out" in said


@pytest.mark.parametrize("driver", ["", "cgroupfs", "systemd"])
def test_a_choice_that_there_is_is_taken(driver):
    """The default by an empty value, too."""
    code, said = collected(DEVHERD_TEST_CGROUP_DRIVER=driver)

    assert code == 0, said
    assert "test_a_container_opens_its_device_and_no_other" in said
