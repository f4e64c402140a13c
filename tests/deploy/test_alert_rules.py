"""The alert rules: promtool loads them, sees each fire and be silent, and each leads to what to do about it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from devherd.cli.commands import COMMANDS
from devherd.counters import BY_RESOURCE_CHILDREN, BY_THE_SCANNER
from devherd.exporter import declarations

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = (PROMETHEUS / "rules.yaml").read_text()
PAGE = (ROOT / "docs" / "install.md").read_text()
ON_CALL = (ROOT / "docs" / "on-call.md").read_text()
ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"] if "alert" in rule
}
BASE = "https://devherd.example/docs"
SECTIONS = dict(re.findall(r"^### (Device\w+)\n(.*?)(?=^##|\Z)", ON_CALL, re.MULTILINE | re.DOTALL))


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
    annotations = ALERTS[alert]["annotations"]
    assert ALERTS[alert]["labels"]["severity"] in {"info", "warning", "critical"}
    assert {"summary", "description", "command", "runbook_url"} == set(annotations)
    assert annotations["runbook_url"] == f"{BASE}/on-call.html#{alert.lower()}"
    assert "kubectl -n {{ .Labels.namespace }} exec {{ .Labels.pod }} -- " in annotations["command"]


def test_every_alert_has_its_place_on_the_page_for_whoever_is_on_call():
    """First a command, then what to do; what the alert means and costs is in its own description."""
    assert SECTIONS.keys() == ALERTS.keys()
    assert [
        title for title, text in SECTIONS.items() if not re.match(r"\n`devherd .*\n(.*\n)*\n\*\*Do\*\* ", text)
    ] == []


def test_every_command_of_alerts_and_of_that_page_exists():
    """As a command of devherd; what is asked of a running instance is tried in tests/prometheus."""
    given = "\n".join(alert["annotations"]["command"].rpartition(" -}} ")[2] for alert in ALERTS.values())
    words = re.findall(r"(?:^|`)devherd ((?:sim |config )?[a-z-]+)", given + ON_CALL, re.MULTILINE)
    assert {"status", "explain", "ctl", "scan"} <= set(words)
    assert set(words) - COMMANDS.keys() == set()


def test_every_metric_in_the_rules_is_one_that_devherd_has():
    """A metric that is renamed takes its alerts along: they would be silent for ever."""
    counters = (*BY_RESOURCE_CHILDREN, *BY_THE_SCANNER)
    exposed = {each.name for each in (*declarations.ALL, *counters)}
    asked = set(re.findall(r"(?<!:)\bdevherd_\w+(?!:)\b", RULES))
    assert asked
    assert set() == {name for name in asked if name.removesuffix("_total") not in exposed}


def test_the_scrape_configuration_that_is_shown_is_one(tool, tmp_path):
    """Prometheus would start with it, and with the rules. Debian's is built without Kubernetes' discovery."""
    [shown] = re.findall(r"^```yaml\n(scrape_configs:\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown, found = re.subn(r"kubernetes_sd_configs: \[.*\]", "static_configs: [{targets: [localhost:9478]}]", shown)
    assert found == 1
    (tmp_path / "prometheus.yml").write_text(f"rule_files: [{PROMETHEUS}/rules.yaml]\n{shown}")
    subprocess.run([tool("promtool"), "check", "config", tmp_path / "prometheus.yml"], check=True)


def test_the_rules_become_an_object_of_the_operator_as_it_is_shown():
    """With links to the address that the recipe names, and nothing else changed."""
    [recipe] = re.findall(r"^(\{\n.*?^\}) \| kubectl apply -f -$", PAGE, re.MULTILINE | re.DOTALL)
    made = subprocess.run(["bash", "-c", recipe], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rule = yaml.safe_load(made)
    assert (rule["kind"], rule["metadata"]) == ("PrometheusRule", {"name": "devherd", "namespace": "devherd"})
    assert rule["spec"] == yaml.safe_load(RULES.replace(BASE, "https://docs.example.com/devherd"))
