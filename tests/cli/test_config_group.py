"""`devherd config show`, `config sample` and `config schema`."""

import json
import re

import jsonschema
import pytest
import yaml
from command_line import devherd

from devherd.config.describe import EXAMPLES, RARE, keys_of, sample
from devherd.config.loader import valid
from devherd.config.model import Config

FULL = """\
run_dir: /file
scan: {period: 7s}
health:
  kernel_log: {optional: [mlx5-unrecoverable], rules: [{name: mine, contains: nvme, pattern: "^nvme (?P<bdf>.*) is"}]}
  rules:
    - {match: {vendor: intel-fpga, exclude: [{numa_node: 1}]}, reason: temperature, value: 79, action: warn, hold: 1m}
  xid: {79: warn}
  external: [{name: a, match: {id: "*"}, command: [/a, "-b"], interval: 1m30s}]
vendors:
  intel_gpu: {monitoring: split, allow_ids: ["0x56c0"]}
  rdma: {mode: shared, pools: [{name: a.b/c, rdma_hca_max: 3, selectors: {vendors: [15b3]}}]}
resources:
  - match: {vendor: intel-fpga, pci_address: ["0000:81:*", "0000:82:*"]}
    name: example.com/af
    sharing: {replicas: 4}
  - {match: {vendor: rdma}, advertise: false}
generic: [{name: devic.es/kvm, groups: [{paths: [{path: /dev/kvm}, {path: /x}]}, {usb: [{vendor: 0403, product: 1}]}]}]
"""


@pytest.fixture
def file(tmp_path):
    """A configuration with something in every kind of section."""
    path = tmp_path / "config.yaml"
    path.write_text(FULL)
    return path


def test_the_effective_configuration_is_shown_with_the_origin_of_each_value(file):
    """Of an option, a variable, a line of the file, and the default."""
    environment = {"DEVHERD_RUN_DIR": "/environment", "DEVHERD_CONFIG": str(file)}
    outcome = devherd("config", "show", "--listen", "127.0.0.1:1", environment=environment)

    assert (outcome.code, outcome.stderr) == (0, "")
    shown = dict(re.split(r"\s+# ", line) for line in outcome.stdout.splitlines() if "  # " in line)
    assert shown["listen: 127.0.0.1:1"] == "--listen"
    assert shown["run_dir: /environment"] == "DEVHERD_RUN_DIR"
    assert shown["  period: 7s"] == f"{file}:2"
    assert shown["  probe_timeout: 2s"] == "default"
    assert shown["      interval: 1m30s"] == f"{file}:8"
    assert shown["    name: example.com/af"] == f"{file}:14"


def test_what_is_shown_is_a_configuration_that_does_the_same(file):
    """It can be kept as a file, as YAML and as JSON."""
    written = valid("written", FULL)
    shown = devherd("config", "show", "--config", file).stdout
    as_json = json.loads(devherd("config", "show", "--config", file, "--output", "json").stdout)

    assert valid("shown", shown).model_dump() == written.model_dump()
    assert valid("json", json.dumps(as_json["configuration"])).model_dump() == written.model_dump()
    assert as_json["file"] == str(file)
    assert as_json["origins"]["resources[1].advertise"] == f"{file}:16"
    assert as_json["origins"]["health.xid.79"] == f"{file}:7"
    assert as_json["origins"]["generic[0].groups[1].usb[0].serial"] == "default"


def test_a_bad_configuration_is_not_shown(tmp_path):
    """It says what is wrong with it, as every command does."""
    path = tmp_path / "config.yaml"
    path.write_text("scna: {}\n")

    outcome = devherd("config", "show", "--config", path)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert "did you mean `scan`?" in outcome.error_line


@pytest.mark.parametrize("options", [[], ["--all"]])
def test_the_sample_is_the_default_configuration_as_it_is_and_without_any_comment(options):
    """Whoever takes in a line gets what it says."""
    outcome = devherd("config", "sample", *options)
    taken_in = re.sub(r"^(\s*)#(?! |$)", r"\1", outcome.stdout, flags=re.MULTILINE)

    assert outcome.code == 0
    assert outcome.stdout == sample(is_whole="--all" in options)
    assert taken_in.count("\n#") < outcome.stdout.count("\n#")
    assert valid("sample", outcome.stdout).model_dump() == Config().model_dump()
    assert valid("taken in", taken_in).model_dump() == Config().model_dump()


def keys_below(section, above=()):
    """Every key of the file."""
    for key in keys_of(section):
        yield (*above, key)
        if key.section:
            yield from keys_below(key.section, (*above, key))


def test_the_usual_sample_leaves_out_the_rare_keys_and_no_others():
    """Each of these is a key, and has a place in the whole one."""
    usual, whole = (
        yaml.safe_load(re.sub(r"^(\s*)#(?! |$)", r"\1", sample(is_whole=each), flags=re.MULTILINE))
        for each in (False, True)
    )

    assert leaves(whole) - leaves(usual) == RARE
    assert len(sample().splitlines()) < 0.7 * len(sample(is_whole=True).splitlines())


def leaves(section, above=""):
    """The path of each key of the sample that is no section."""
    if not (isinstance(section, dict) and section):
        return {above}
    return {path for key, value in section.items() for path in leaves(value, f"{above}.{key}".removeprefix("."))}


def test_the_whole_sample_has_every_key():
    """Those of a list's entries are described, the others can be taken in."""
    taken_in = yaml.safe_load(re.sub(r"^(\s*)#(?! |$)", r"\1", sample(is_whole=True), flags=re.MULTILINE))
    for path in keys_below(Config):
        lists = [place for place, key in enumerate(path[:-1]) if key.is_many or key.name == "match"]
        section = taken_in
        for key in path[: lists[0] + 1 if lists else len(path)]:
            section = section[key.name]
        if lists:
            names = "".join(key.prefix for key in path[lists[0] + 1 : -1]) + path[-1].name
            assert re.search(rf"#   {re.escape(names)}: ", sample(is_whole=True))


def test_every_key_has_a_description_in_the_schema():
    """90 keys had none."""
    outcome = devherd("config", "schema")
    schema = json.loads(outcome.stdout)

    assert [
        f"{name}.{key}"
        for name, section in {"": schema, **schema["$defs"]}.items()
        for key, value in section.get("properties", {}).items()
        if not (value.get("description") or schema["$defs"][value["$ref"].rpartition("/")[2]].get("description"))
    ] == []


@pytest.mark.parametrize("section", EXAMPLES)
def test_every_example_is_valid_and_fits_the_schema(section):
    """Also where only users read it."""
    content = yaml.safe_load(EXAMPLES[section])
    jsonschema.validate(content, Config.model_json_schema())

    assert valid("example", EXAMPLES[section]).model_dump() != Config().model_dump()
    for key in section.split("."):
        content = content[key]


def test_what_the_group_has_is_told():
    """With and without a command of it."""
    overview = devherd("config", "--help")
    wrong = devherd("config", "shwo")

    assert overview.code == 0
    assert all(f"  config {name}" in overview.stdout for name in ("check", "show", "sample", "schema", "import"))
    assert wrong.code == 2
    assert "did you mean `devherd config show`?" in wrong.error_line
