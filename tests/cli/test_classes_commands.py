"""`devherd classes` and `devherd classes check`."""

import json

import pytest
from class_trees import accelerators, misc, written
from command_line import devherd

CLASS = """
title = "Loop widgets"
[find]
class = "misc"
name = "widget{n}"
[facts]
model = {read = "model"}
[plugin]
resource = "acme.example/{model}"
shares = 5
env = {WIDGET = "{n}"}
"""


@pytest.fixture
def host(tmp_path):
    """An NPU, a device that two classes of the configuration know, and one that is broken."""
    root = written(tmp_path / "host", accelerators(), misc({"kvm": "kvm", "widget0": "widget0", "widget1": "widget1"}))
    (root / "sys/devices/virtual/misc/widget0/model").write_text("small\n")
    return root


def test_the_list_has_each_class_with_its_devices_here_and_those_in_force_first(tmp_path, host):
    """Also those that are not served: it shows what a host could have."""
    (tmp_path / "config.yaml").write_text(
        'classes: {enable: kvm, define: {widget: {title: W, find: {class: misc, name: "widget{n}"}}}}\n'
    )
    given = ("--config", tmp_path / "config.yaml", "--host-root", host)

    told = json.loads(devherd("classes", "--output", "json", *given).stdout)["classes"]
    table = devherd("classes", *given)

    assert [(one["name"], one["enabled"], one["devices"]) for one in told[:3]] == [
        ("kvm", True, 1),
        ("widget", True, 2),
        ("intel-npu", False, 1),
    ]
    assert told[1] == {
        "name": "widget",
        "enabled": True,
        "devices": 2,
        "title": "W",
        "resource": "devherd.io/widget",
        "source": "configuration",
        "confirmed": None,
    }
    assert (table.code, table.stderr) == (0, "")
    assert [line.split()[:3] for line in table.stdout.splitlines()[:4]] == [
        ["CLASS", "SERVED", "DEVICES"],
        ["kvm", "yes", "1"],
        ["widget", "yes", "2"],
        ["intel-npu", "no", "1"],
    ]


def test_a_file_is_tried_before_it_is_served(tmp_path, host):
    """Each device with its facts and the file of each, nodes and variables; what is not known is a problem."""
    (tmp_path / "widget.toml").write_text(CLASS)
    broken = "/sys/devices/virtual/misc/widget1/model"

    outcome = devherd("classes", "check", tmp_path / "widget.toml", "--host-root", host)
    told = json.loads(
        devherd("classes", "check", tmp_path / "widget.toml", "--host-root", host, "--output", "json").stdout
    )

    assert (outcome.code, outcome.stderr) == (1, "")
    lines = outcome.stdout.splitlines()
    assert lines[:2] == ["class widget: 1 device", "  acme.example/small: widget0-0 … widget0-4 (5 shares)"]
    assert "    model = small (text) from /sys/devices/virtual/misc/widget0/model" in lines
    assert "    n = 0 (number) from /sys/devices/virtual/misc/widget0" in lines
    assert {"    node /dev/widget0 rw", "    WIDGET=0"} <= {*lines}
    assert lines[-1].startswith(f"problem: {broken}: ")
    left = {
        line.partition(": ")[0].removeprefix("  not "): line.partition(": ")[2] for line in lines if "  not " in line
    }
    assert {*left} == {"/sys/devices/virtual/misc/kvm"}
    assert all(left.values())
    assert {one["path"]: one["why"] for one in told["not_taken"]} == left
    assert [(one["path"], one["entry"]) for one in told["problems"]] == [(broken, broken.removesuffix("/model"))]
    [device] = told["devices"]
    assert (device["class"], device["resource"], len(device["ids"])) == ("widget", "acme.example/small", 5)
    assert device["facts"]["model"] == {
        "value": "small",
        "kind": "text",
        "file": "/sys/devices/virtual/misc/widget0/model",
    }


def test_a_shipped_class_is_checked_by_its_name_unless_a_file_is_called_so(tmp_path, host, monkeypatch):
    """As the notes on hardware that nobody serves tell people to do."""
    monkeypatch.chdir(tmp_path)
    assert devherd("classes", "check", "intel-npu", "--host-root", host).stdout.startswith(
        "class intel-npu: 1 device\n  npu.intel.com/accel: accel0-0\n"
    )
    (tmp_path / "intel-npu").write_text("find: {class: gadget}\n")
    assert devherd("classes", "check", "intel-npu", "--host-root", host).stdout.startswith(
        "class intel-npu: 0 devices\n  there is no entry in /sys/class/gadget\n"
    )


def test_what_the_health_of_a_class_sees_now_is_shown_and_what_it_cannot_tell(host):
    """Defect: a limit on a file without a number was silent, and never seen to work before it was served."""
    state = host / "sys/devices/virtual/misc/widget0/model"
    text = (
        "find: {class: misc, name: widget0}\n"
        "health: [{read: model, equals: broken, reason: widget-broken}, {read: model, beyond: 3, reason: widget-hot}]\n"
    )
    told = {}
    for shown in ("2", "4", "broken"):
        state.write_text(f"{shown}\n")
        lines = devherd("classes", "check", "-", "--host-root", host, stdin=text).stdout.splitlines()
        told[shown] = [line.strip() for line in lines if "widget-" in line or "health" in line]
    file = "/sys/devices/virtual/misc/widget0/model"
    assert told == {
        "2": [],
        "4": [f"widget-hot: {file} 4"],
        "broken": [
            f"widget-broken: {file} broken",
            'health by class is not known: model is "broken", which is no number',
        ],
    }


def test_a_class_that_finds_nothing_says_where_it_looked(tmp_path, host):
    """From standard input, in YAML."""
    outcome = devherd("classes", "check", "-", "--host-root", host, stdin="find: {class: gadget}\n")

    assert (outcome.code, outcome.stdout) == (
        0,
        "class standard-input: 0 devices\n  there is no entry in /sys/class/gadget\n",
    )


@pytest.mark.parametrize(
    ("find", "where"),
    [
        ("{bus: pci, driver: vfio-pci}", "/sys/bus/pci/drivers/vfio-pci"),
        ("{bus: pci, driver: [a, b]}", "/sys/bus/pci/drivers/a and /sys/bus/pci/drivers/b"),
        ("{bus: usb, driver: a}", "/sys/bus/usb/devices"),
    ],
)
def test_a_class_looks_where_its_driver_lists_its_functions(host, find, where):
    """The directory that was looked at is named."""
    outcome = devherd("classes", "check", "-", "--host-root", host, stdin=f"find: {find}\nnodes: [x]\n")

    assert outcome.stdout.splitlines()[1:] == [f"  there is no entry in {where}"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("nodes: [kvm]", "/dev/kvm: left out of class `standard-input`: widget0 of class `standard-input` has the"),
        ("plugin: {id: one}", "widget1: left out of class `standard-input`: widget0 of class `standard-input` has"),
    ],
)
def test_a_device_that_is_left_out_beside_another_is_told(host, more, why):
    """Two entries with one node, or one id: otherwise somebody would miss a device and find no reason."""
    given = ("classes", "check", "-", "--host-root", host)
    text = f'find: {{class: misc, name: "widget{{n}}"}}\n{more}\n'
    outcome = devherd(*given, stdin=text)
    told = json.loads(devherd(*given, "--output", "json", stdin=text).stdout)

    assert (outcome.code, outcome.stderr) == (0, "")
    [line] = [line for line in outcome.stdout.splitlines() if line.startswith("notice: ")]
    assert why in line
    assert [f"notice: {one['path']}: {one['notice']}" for one in told["notices"]] == [line]
    assert len(told["devices"]) == 1


def test_a_device_that_another_vendor_has_is_told(tmp_path, host):
    """As it will be when the class is served with this configuration; the other's own devices are not shown."""
    (tmp_path / "config.yaml").write_text("generic: [{name: a.b/kvm, groups: [{paths: [{path: /dev/kvm}]}]}]\n")
    given = ("--config", tmp_path / "config.yaml", "--host-root", host)
    outcome = devherd("classes", "check", "-", *given, stdin="find: {class: misc, name: kvm}\n")

    lines = [line for line in outcome.stdout.splitlines() if not line.startswith("  not ")]
    assert lines[0] == "class standard-input: 0 devices"
    assert lines[1:] == ["notice: /dev/kvm: left out of class `standard-input`: generic offers its node"]


def test_a_problem_of_a_file_elsewhere_names_its_entry_and_another_class_still_says_where_it_looked(host):
    """Each failure is one line."""
    text = (
        'a: {find: {class: misc, name: "widget{n}"}, facts: {b: {read: "/sys/module/{name}/b"}},'
        ' plugin: {id: "{b}"}}\nc: {find: {class: gadget}}\n'
    )
    lines = devherd("classes", "check", "-", "--host-root", host, stdin=text).stdout.splitlines()

    assert "  there is no entry in /sys/class/gadget" in lines
    failed = [line for line in lines if "widget" in line and "misc/kvm" not in line]
    assert [line.partition(": ")[0] for line in failed] == ["problem", "problem"]
    assert [line.rpartition(" (of ")[2] for line in failed] == [
        f"/sys/devices/virtual/misc/widget{number})" for number in (0, 1)
    ]


def test_every_error_of_a_file_is_told_at_once(tmp_path):
    """Before anything is scanned."""
    (tmp_path / "widget.toml").write_text("titel = 1\n[find]\nclass = 'x'\nvendor = 'acme'\n")

    outcome = devherd("classes", "check", tmp_path / "widget.toml")

    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.splitlines() == [
        (
            f"devherd: bad class in {tmp_path}/widget.toml:4:10 — find.vendor[0]: `acme` is not a PCI id — write it in"
            " quotes, like `'0x8086'`"
        ),
        f"devherd: bad class in {tmp_path}/widget.toml:1:1 — titel: unknown key — did you mean `title`?",
    ]


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    """Like every error."""
    outcome = devherd("classes", "check", tmp_path / "none.toml")

    assert outcome.code == 2
    assert "No such file or directory" in outcome.error_line
