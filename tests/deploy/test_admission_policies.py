"""The admission policies of the manifests, as text; tests/cluster/test_own_node.py plays them at a real API server."""

import re

import pytest
import yaml
from kustomizations import KUBERNETES

WRITE = {"create", "update", "patch", "delete"}


@pytest.mark.parametrize("component", sorted(path.parent.name for path in KUBERNETES.glob("components/*/rbac.yaml")))
def test_each_right_to_write_comes_with_a_policy_that_limits_it_to_the_own_node(component):
    """Without it the token of one node could change every other: RBAC knows no node of a pod."""
    rules = [rule for each in objects_of(component, "rbac.yaml") for rule in each.get("rules", ())]
    written = {
        (group, name)
        for rule in rules
        if WRITE & {*rule["verbs"]}
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    found = objects_of(component, "policy.yaml")
    limited = set()
    for policy, binding in zip(found[::2], found[1::2], strict=True):
        assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (
            policy["metadata"]["name"],
            ["Deny"],
        )
        spec = policy["spec"]
        assert spec["failurePolicy"] == "Fail"
        for rule in spec["matchConstraints"]["resourceRules"]:
            limited |= {(group, name) for group in rule["apiGroups"] for name in rule["resources"]}
    assert limited == written


def objects_of(component: str, file: str) -> list[dict]:
    path = KUBERNETES / "components" / component / file
    return list(yaml.safe_load_all(path.read_text())) if path.exists() else []


ACCOUNTS = {
    "system:serviceaccount:devherd:devherd": True,
    "system:serviceaccount:tools:devherd": True,
    "system:serviceaccount:devherd:devherd-nvidia": True,
    "system:serviceaccount:devherd:devherd-clean-nodes": False,
    "system:serviceaccount:devherd:devherd-clean-nodes-tools": False,
    "system:serviceaccount:devherd:other": False,
    "system:serviceaccount:devherd:not-devherd": False,
    "system:node:devherd": False,
}


def test_the_policies_are_for_devherds_accounts_of_any_pool_and_not_for_the_job_that_cleans():
    """Kustomize changes namespace and names, and no text in an expression."""
    conditions = {
        policy["spec"]["matchConditions"][0]["expression"]
        for path in KUBERNETES.glob("components/*/policy.yaml")
        for policy in objects_of(path.parent.name, "policy.yaml")[::2]
    }
    [condition] = conditions
    [(pattern, without)] = re.findall(
        r"matches\('(.*)'\)\s+&& !request.userInfo.username.contains\('(.*)'\)", condition
    )
    found = {name: bool(re.search(pattern, name)) and without not in name for name in ACCOUNTS}
    assert found == ACCOUNTS
