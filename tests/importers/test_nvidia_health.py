"""DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS of NVIDIA's plugin, as devherd's configuration."""

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.importers import PLUGINS
from devherd.importers.plugin import Invocation


def imported(disable=None, enable=None):
    """Health, and what is said about it."""
    given = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable}
    environment = {name: value for name, value in given.items() if value is not None}
    made = PLUGINS["nvidia"].imported(Invocation([], environment), None)
    assert resolve(Config.model_validate(made.config)).health
    return made.config.get("health"), [note for note in made.notes if "HEALTHCHECKS" in note]


@pytest.mark.parametrize(
    ("disable", "enable", "xid"),
    [
        ("94", None, {94: "ignore"}),
        (" 94, 95,", None, {94: "ignore", 95: "ignore"}),
        (None, "109", {109: "unhealthy"}),
        ("94,109", "94", {94: "unhealthy", 109: "ignore"}),
        ("94", "all", dict.fromkeys([13, 31, 43, 45, 68, 94, 109], "unhealthy")),
    ],
)
def test_lists_of_xids_stand_beside_the_plugins_own(disable, enable, xid):
    """What is enabled counts, disabled or not."""
    assert imported(disable, enable) == ({"xid": {"policy": "plugin", **xid}}, [])


@pytest.mark.parametrize("disable", ["all", "xids", "XIDS", "13,xids"])
def test_health_checks_that_are_switched_off_are_xids_that_are_ignored(disable):
    """Whatever is enabled; the other reasons of devherd are told of."""
    health, notes = imported(disable, "all")
    assert health == {"rules": [{"reason": "xid", "action": "ignore"}]}
    assert len(notes) == 1


def test_what_is_no_xid_is_named():
    """The plugin logs it."""
    assert imported("94,ecc") == (
        {"xid": {"policy": "plugin", 94: "ignore"}},
        ["DP_DISABLE_HEALTHCHECKS: `ecc` is left out: it is not an Xid"],
    )


def test_without_the_variables_xids_do_what_devherd_has_them_do():
    """Nothing is written."""
    assert imported() == (None, [])
