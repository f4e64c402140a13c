"""`devherd config check` and `devherd config schema`."""

import json

import jsonschema
import pytest
import yaml
from command_line import devherd


def test_every_error_of_a_config_has_its_line_and_key_path(tmp_path):
    """All of them at once, each in the form of every error; exit 2."""
    path = tmp_path / "config.yaml"
    path.write_text("scan: {period: 5x}\nhealth: {recover_after: 0}\nresorces: []\n")

    outcome = devherd("config", "check", path)
    lines = outcome.stderr.splitlines()

    assert (outcome.code, outcome.stdout) == (2, "")
    assert len(lines) == 3
    for line, said in zip(
        lines,
        [
            "1:16 — scan.period: `5x` is not a duration — ",
            "2:25 — health.recover_after: `0` is too small — ",
            "3:1 — resorces: unknown key — did you mean `resources`?",
        ],
        strict=True,
    ):
        assert line.startswith(f"devherd: bad configuration in {path}:{said}")


def test_every_error_of_several_wrong_classes_is_told_at_once_with_the_rest(tmp_path):
    """Line, column and cure of each, and of a name that does not exist; the right ones are no error."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "classes:\n"
        "  enable: [kvm, intel-npd]\n"
        "  define:\n"
        "    one: {find: {class: x}, group: nam, facts: {type: {read: a}, b: {above: c}}}\n"
        "    right: {find: {class: y}}\n"
        "    two: {find: {name: z}, titel: x}\n"
        "scan: {period: 5x}\n"
    )

    outcome = devherd("config", "check", path)

    assert (outcome.code, outcome.stdout) == (2, "")
    told = [line.removeprefix(f"devherd: bad configuration in {path}:") for line in outcome.stderr.splitlines()]
    assert sorted(line[: line.rindex(" — ")].partition(", and there")[0] for line in told) == [
        "2:17 — classes.enable[1]: there is no class `intel-npd`",
        "4:36 — classes.define.one.group: `nam` is no fact of the class",
        "4:55 — classes.define.one.facts.type: `type` is what DRA calls the class",
        "4:77 — classes.define.one.facts.b.above: `above` is a file of the ancestor that `find.above` means",
        "6:17 — classes.define.two.find: where to look is not said",
        "6:28 — classes.define.two.titel: unknown key",
        "7:16 — scan.period: `5x` is not a duration",
    ]


def test_of_many_errors_or_warnings_the_first_are_told_and_their_number(tmp_path):
    """Defect: 20 000 rules made 20 052 lines."""
    path = tmp_path / "config.yaml"
    devices = "simulated: [{name: example.com/gpu, count: 1}]\n"
    path.write_text(devices + "resources:\n" + "".join(f"- match: {{id: x{n}}}\n" for n in range(30)))
    idle = devherd("config", "check", path, "--strict", "--host-root", tmp_path)
    path.write_text("resources:\n" + "".join(f"- match: {{idd: x{n}}}\n" for n in range(30)))
    wrong = devherd("config", "check", path, "--host-root", tmp_path)

    assert (idle.code, wrong.code) == (1, 2)
    assert idle.stderr.splitlines()[19].startswith(f"devherd: warning: {path}:22:3: resources[19]: matches no device")
    assert idle.stderr.splitlines()[20:] == ["devherd: warning: and 10 more warnings", "devherd: warnings: 30"]
    assert len(wrong.stderr.splitlines()) == 21
    assert wrong.stderr.splitlines()[20] == "devherd: and 10 more errors"


@pytest.mark.parametrize(("glob", "meant"), [("H100", "*H100*"), ("h100", "*H100*"), ("'*h100*'", "*H100*")])
def test_a_text_that_is_part_of_a_fact_is_told_with_its_stars(tmp_path, glob, meant):
    """Defect: "matches no device", though there are eight of this model."""
    assert devherd("sim", "node", tmp_path / "node", "--spec", "nvidia-8").code == 0
    path = tmp_path / "config.yaml"
    path.write_text(f"resources: [{{match: {{model: {glob}}}, name: example.com/h}}]\n")

    assert f" — did you mean `{meant}`?\n" in devherd("config", "check", path, "--host-root", tmp_path / "node").stderr


def test_a_good_config_is_shown_with_the_resources_it_makes(tmp_path):
    """On this host, now."""
    path = tmp_path / "config.yaml"
    path.write_text("simulated: [{name: example.com/gpu, count: 2}]\n")

    outcome = devherd("config", "check", path, "--host-root", tmp_path)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"{path} is valid. On this host it results in:\n")
    assert outcome.stdout.count("example.com/gpu") == 2


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ("{interfaceid: '*'}", "interfaceid: no vendor has this fact — did you mean `interface_id`?"),
        ("{vendor: nvdia}", "vendor: no vendor matches `nvdia` — did you mean `nvidia`?"),
        ("{exclude: [{vendor: simulated, model: x}]}", "exclude[0].model: devices of simulated do not have this fact"),
    ],
)
def test_a_selector_that_names_what_does_not_exist_is_an_error(tmp_path, match, said):
    """A misspelt rule was accepted without a word, and resources vanished."""
    path = tmp_path / "config.yaml"
    path.write_text(
        f"simulated: [{{name: a.example/x, count: 1}}]\nresources: [{{match: {match}, advertise: false}}]\n"
    )

    outcome = devherd("config", "check", path, "--host-root", tmp_path)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"devherd: bad configuration in {path}:2:")
    assert f" — resources[0].match.{said}" in outcome.stderr


def test_a_setting_without_an_effect_is_told_last_and_is_an_error_when_asked_for(tmp_path):
    """A value that no device can have."""
    path = tmp_path / "config.yaml"
    path.write_text("resources: [{match: {vendor_id: '8086'}, advertise: false}]\n")

    outcome = devherd("config", "check", path, "--host-root", tmp_path)
    strict = devherd("config", "check", "--strict", path, "--host-root", tmp_path)

    assert (outcome.code, strict.code) == (0, 1)
    assert f"{path} is valid." in outcome.stdout
    assert outcome.stderr == strict.stderr
    doubt = "`8086` can never match — values look like `0x8086`, in full and lower case"
    assert outcome.stderr.splitlines() == [
        f"devherd: warning: {path}:1:33: resources[0].match.vendor_id: {doubt}",
        "devherd: warnings: 1",
    ]


def test_a_program_or_file_that_cannot_be_used_on_this_host_is_told(tmp_path):
    """Missing, not executable, writable by everybody: all that the source itself would say later."""
    script, path = tmp_path / "check", tmp_path / "config.yaml"
    match = "match: {id: '*'}"
    path.write_text(
        f"web_config: {tmp_path}/web.yml\n"
        "simulated: [{name: a.example/x, count: 1}]\nhealth:\n  external:\n"
        f"    - {{name: a, {match}, command: [{tmp_path}/none]}}\n"
        f"    - {{name: b, {match}, command: [{script}]}}\n"
        f"    - {{name: c, {match}, command: [/bin/sh, {script}]}}\n"
        f"    - {{name: d, {match}, file: {tmp_path}/none}}\n"
    )
    script.write_text("exit 0\n")
    script.chmod(0o666)
    bad = devherd("config", "check", path, "--host-root", tmp_path)
    script.chmod(0o644)
    not_executable = devherd("config", "check", path, "--host-root", tmp_path)

    open_to_all = f"everybody may write {script}; take that right away with `chmod o-w`"
    told = [
        f"command: {tmp_path}/none cannot be started: No such file or directory",
        f"command: {open_to_all}",
        f"command: {open_to_all}",
        f"file: {tmp_path}/none cannot be read: No such file or directory",
    ]
    first, *others, _ = bad.stderr.splitlines()
    assert first.endswith(f":1:13: web_config: `{tmp_path}/web.yml` is not there — devherd does not start without it")
    assert [line.partition("].")[2] for line in others] == [
        f"{each} — without it, it reports nothing on this host" for each in told
    ]
    assert f"{script} cannot be started: Permission denied" in not_executable.stderr
    assert not_executable.stderr.endswith("devherd: warnings: 4\n")


def test_a_rule_that_matches_no_device_of_this_host_is_told_unless_it_may(tmp_path):
    """`model: "*A100*"` on a node with H100s was called good without a word."""
    path = tmp_path / "config.yaml"
    rule = "resources: [{match: {id: nobody}, name: a.example/y}]\n"
    path.write_text(f"simulated: [{{name: a.example/x, count: 1}}]\n{rule}")
    outcome = devherd("config", "check", "--strict", path, "--host-root", tmp_path)
    path.write_text(path.read_text().replace("name: a.example/y", "optional: true"))
    optional = devherd("config", "check", "--strict", path, "--host-root", tmp_path)

    assert outcome.code == 1
    told = f"devherd: warning: {path}:2:13: resources[0]: matches no device of this node, which has 1 device — "
    assert outcome.stderr.startswith(told)
    assert outcome.stderr.endswith("devherd: warnings: 1\n")
    assert (optional.code, optional.stderr) == (0, "")


def test_a_bad_value_is_an_error_also_where_a_variable_overrules_it(tmp_path):
    """In the DaemonSet the address is given by a variable; the file was called good."""
    path = tmp_path / "config.yaml"
    environment = {"DEVHERD_LISTEN": ":9478"}
    path.write_text("listen: 'localhost:99999'\n")
    bad = devherd("config", "check", path, "--host-root", tmp_path, environment=environment)
    path.write_text("listen: 'localhost:9999'\nlog_level: debug\n")
    good = devherd("config", "check", path, "--host-root", tmp_path, environment=environment)

    assert bad.code == 2
    assert " — listen: " in bad.stderr
    assert (good.code, good.stderr) == (0, f"devherd: {path}: listen: overridden by DEVHERD_LISTEN\n")


def test_a_configuration_is_taken_from_standard_input(tmp_path):
    """As `config import` does."""
    command = ("config", "check", "-", "--host-root", tmp_path)
    good = devherd(*command, stdin="simulated: [{name: a.example/x, count: 1}]\n")
    bad = devherd(*command, stdin="simulatde: []\n")

    assert (good.code, good.stderr) == (0, "")
    assert "a.example/x" in good.stdout
    assert bad.code == 2
    assert bad.stderr.startswith("devherd: bad configuration in standard input:1:1 — simulatde: unknown key — ")


def test_keys_without_a_value_have_their_defaults(tmp_path):
    """All below `vendors:` may be commented out."""
    path = tmp_path / "config.yaml"
    content = "vendors:\nresources:\nscan: {period: }\nhealth:\nlisten:\nsimulated: [{name: a.example/x, count: }]\n"
    path.write_text(content)

    outcome = devherd("config", "check", path, "--host-root", tmp_path)

    assert outcome.code == 2
    (line,) = outcome.stderr.splitlines()
    assert f"{path}:6:40 — simulated[0].count: there is no value — give one, or remove the key" in line
    path.write_text(content.replace("count: ", "count: 1"))
    assert devherd("config", "check", path, "--host-root", tmp_path).code == 0


def test_a_simulated_resource_that_is_named_twice_is_an_error_with_both_places(tmp_path):
    """It was called good, and its second entry was left out."""
    path = tmp_path / "config.yaml"
    path.write_text("simulated: [{name: a.example/x, count: 1}, {name: a.example/x, count: 2}]\n")

    outcome = devherd("config", "check", path)

    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.error_line == (
        f"devherd: bad configuration in {path}:1:51 — simulated[1].name: `a.example/x` is already the name of"
        " simulated[0] — merge the two entries or rename one"
    )


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a: [", b"- 1\n", b"scan: {period: 1s}\nscan: {period: 2s}\n", b"? [1]\n: 2\n"]
)
def test_a_file_that_is_no_configuration_is_one_line(tmp_path, content):
    """Not text, not YAML, not a mapping, a key twice, a key that is a list."""
    path = tmp_path / "config.yaml"
    path.write_bytes(content)

    outcome = devherd("config", "check", path)

    assert outcome.code == 2
    assert str(path) in outcome.error_line


def test_an_unreadable_file_is_one_line(tmp_path):
    """Absent, or a directory."""
    for path in (tmp_path / "absent.yaml", tmp_path):
        outcome = devherd("config", "check", path)

        assert outcome.code == 2
        assert f"cannot read {path}" in outcome.error_line


def test_the_schema_is_valid_and_fits_the_default_and_an_example():
    """Editors and validators can use it."""
    outcome = devherd("config", "schema")
    schema = json.loads(outcome.stdout)

    assert outcome.code == 0
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = yaml.safe_load("generic: [{name: devic.es/kvm, groups: [{count: 10, paths: [{path: /dev/kvm}]}]}]")
    assert list(validator.iter_errors({})) == []
    assert list(validator.iter_errors(example)) == []
    assert list(validator.iter_errors({"nonsense": 1})) != []


def test_with_dra_a_check_notes_that_no_api_server_can_be_asked_and_is_strict_only_about_the_rest(tmp_path):
    """The check may run elsewhere than devherd; a kubeconfig is an answer."""
    path, node = tmp_path / "config.yaml", tmp_path / "node"
    assert devherd("sim", "node", node, "--spec", "amd-1").code == 0
    path.write_text("front_end: dra\n")
    alone = devherd("config", "check", "--strict", path, "--host-root", node)
    what = "`front_end: dra` needs an API server, and none can be asked from here"
    cure = "give `kubeconfig`, or run it in a pod with a service account's token"
    assert (alone.code, alone.stderr) == (0, f"devherd: note: {path}:1:12: front_end: {what} — {cure}\n")
    assert "amd.com/gpu" in alone.stdout
    path.write_text("front_end: dra\nregistration: plugins_registry\n")
    idle = devherd("config", "check", "--strict", path, "--host-root", node)
    assert idle.code == 1
    assert "registration: no effect with `front_end: dra`: " in idle.stderr
