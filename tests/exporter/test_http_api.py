"""What /api/v1/openapi.json says of the pages is what they answer."""

import json
from pathlib import Path

import jsonschema
import pytest

from devherd.exporter import application
from devherd.proto import spool_pb2
from devherd.reasons.registry import MEANINGS

OPENAPI = json.loads(Path(application.__file__).with_name("openapi.json").read_text())
PATHS = OPENAPI["paths"]


def check(schema, value):
    """Raises ValidationError."""
    whole = {"$ref": schema["$ref"], "components": OPENAPI["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def undescribed(schema, value):
    """Keys of an answer that its schema does not name."""
    schema = OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(value, list):
        return {found for each in value for found in undescribed(schema["items"], each)}
    if not isinstance(value, dict) or "properties" not in schema:
        return set()
    known = schema["properties"]
    below = {found for key in value if key in known for found in undescribed(known[key], value[key])}
    return below | {key for key in value if key not in known}


@pytest.fixture
def served(instance):
    """Two resources, one with an Unhealthy device; nobody says who holds them."""
    instance.put(
        spool_pb2.Offer(
            name="example.com/gpu",
            vendor="generic",
            devices=[
                spool_pb2.Device(
                    id="a",
                    numa_nodes=[0],
                    edits=spool_pb2.Edits(
                        nodes=[spool_pb2.Node(host_path="/dev/a", container_path="/dev/a", permissions="rw")],
                        mounts=[spool_pb2.Mount(host_path="/m", container_path="/m", read_only=True)],
                        envs={"A": "1"},
                    ),
                    attributes={"model": "X"},
                ),
                spool_pb2.Device(id="b", reasons=["gone"], warnings=["pci-aer"]),
            ],
        )
    )
    instance.put(spool_pb2.Offer(name="other.example/fpga", vendor="simulated", devices=[spool_pb2.Device(id="0")]))
    instance.put_scan(spool_pb2.Problem(vendor="nvidia", path="/proc", error="closed"))
    return instance.start()


def test_every_page_is_described_and_every_described_page_is_there(served):
    """The answer for a page that is not there lists them."""
    assert served.ask("/api/v1/openapi.json")[2] == json.dumps(OPENAPI, indent=2, ensure_ascii=False) + "\n"
    status, _, body = served.ask("/none")
    assert (status, set(body.strip().rpartition("choose from ")[2].split(", "))) == (404, set(PATHS))


def test_statuses_and_types_are_those_that_are_described(served):
    """Each page is asked; each of its parameters has an example that works."""
    for path, operations in PATHS.items():
        operation = operations["get"]
        queries = [f"?{each['name']}={each['example'][0]}" for each in operation.get("parameters", ())]
        for query in ("", *queries):
            status, headers, _ = served.ask(path + query)
            content = operation["responses"][str(status)]["content"]
            assert headers["Content-Type"].partition(";")[0] in content


def test_the_inventory_has_the_keys_that_its_schema_names_and_no_other(served):
    """Programs may rely on what is described; what is answered is described."""
    schema = PATHS["/api/v1/inventory"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    inventory = json.loads(served.ask("/api/v1/inventory")[2])
    assert len(inventory["resources"][0]["devices"]) == 2
    check(schema, inventory)
    assert undescribed(schema, inventory) == set()


def test_examples_are_answers(served):
    """Those of the documentation keep to the schema, with all of its keys."""
    content = PATHS["/api/v1/inventory"]["get"]["responses"]["200"]["content"]["application/json"]
    check(content["schema"], content["example"])
    assert undescribed(content["schema"], content["example"]) == set()


def test_findings_of_the_example_are_of_sources_that_devherd_has():
    """It named `xid`, which is a reason, as a source."""
    example = PATHS["/api/v1/inventory"]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    findings = [(one["source"], one["reason"]) for lost in example["lost"] for one in lost["findings"]]
    assert findings
    assert [one for one in findings if one not in MEANINGS] == []


def test_schemas_are_valid_and_all_references_lead_somewhere():
    """As JSON Schema 2020-12, which OpenAPI 3.1 takes."""
    schemas = OPENAPI["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references(OPENAPI):
        found = OPENAPI
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def references(value):
    """All `$ref`s."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from references(each)
    if isinstance(value, dict) and "$ref" in value:
        yield value["$ref"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["example.com/gpu", "other.example/fpga"]),
        ("?resource=example.com/gpu", ["example.com/gpu"]),
        ("?resource=example.com/gpu&resource=other.example/fpga", ["example.com/gpu", "other.example/fpga"]),
        ("?resource=*.example/*", ["other.example/fpga"]),
        ("?resource=example.com/none", []),
    ],
)
def test_the_inventory_can_be_limited_to_resources(served, query, names):
    """By name or glob; problems of the scan stay."""
    inventory = json.loads(served.ask(f"/api/v1/inventory{query}")[2])
    assert [resource["name"] for resource in inventory["resources"]] == names
    assert len(inventory["problems"]) == 1
