"""Devices that exist only as names, through the native scanner."""

from devherd._native import Scanner
from devherd.config.model import Config


def scan(*resources):
    """One scan of nothing but these simulated resources."""
    return Scanner("/nonexistent", Config.model_validate({"simulated": resources}).native_json()).scan()


def test_devices_are_numbered_and_spread_over_numa_nodes():
    """Ids start at 0 and are the last part of the name."""
    found = scan({"name": "example.com/gpu", "count": 3, "numa_nodes": 2})
    assert [(device.id, device.numa_nodes) for device in found.devices] == [
        ("gpu-0", [0]),
        ("gpu-1", [1]),
        ("gpu-2", [0]),
    ]
    assert {device.resource_name for device in found.devices} == {"example.com/gpu"}


def test_ten_thousand_are_all_there_in_natural_order():
    """gpu-2 comes before gpu-10."""
    found = scan({"name": "example.com/gpu", "count": 10_000})
    assert [device.id for device in found.devices] == [f"gpu-{number}" for number in range(10_000)]


def test_ids_are_unique_within_a_resource_and_two_resources_may_have_the_same():
    """They follow from the last part of the name."""
    found = scan(*({"name": name, "count": 1} for name in ("a.example/gpu", "b.example/gpu")))
    assert [(device.resource_name, device.id) for device in found.devices] == [
        ("a.example/gpu", "gpu-0"),
        ("b.example/gpu", "gpu-0"),
    ]
