"""The alert rules: promtool loads them, sees each fire and be silent, and every metric is one of ours."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_promtool_accepts_the_rules(tool):
    """Prometheus' own checker loads the rules without an error or a complaint."""
    subprocess.run([tool("promtool"), "check", "rules", "--lint-fatal", PROMETHEUS / "rules.yaml"], check=True)


def test_promtool_sees_every_alert_fire_and_be_silent_as_told(tool):
    """Prometheus evaluates the rules over made-up series, and the alerts are those of rules_test.yaml."""
    tested = subprocess.run(
        [tool("promtool"), "test", "rules", "rules_test.yaml"],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_test_where_it_fires_and_one_where_it_does_not(alert):
    """No alert is added without both."""
    expectations = [
        bool(case["exp_alerts"])
        for test in yaml.safe_load((PROMETHEUS / "rules_test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]
    assert {True, False} == set(expectations)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_how_bad_it_is_what_it_is_and_what_to_do(alert):
    """Whoever is woken by it can act on it."""
    assert ALERTS[alert]["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description", "runbook"} == set(ALERTS[alert]["annotations"])


def test_every_metric_in_the_rules_is_one_that_devherd_has():
    """A metric that is renamed takes its alerts along: they would be silent for ever."""
    source = "\n".join(path.read_text() for path in (ROOT / "python" / "devherd").rglob("*.py"))
    exposed = set(re.findall(r'"(devherd_\w+)"', source))
    asked = set(re.findall(r"(?<!:)\bdevherd_\w+(?!:)\b", (PROMETHEUS / "rules.yaml").read_text()))
    assert asked
    assert set() == {name for name in asked if name.removesuffix("_total") not in exposed}
