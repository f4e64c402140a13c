"""A ResourceClaim, whatever it contains: what it has of a driver here, or why it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from devherd.dra.claim import Allocated, ClaimError, ClaimOfPod, allocation_of, has, pods_of

NODE, DRIVER, UID = "node-1", "gpu.amd.com", "0b1c2d3e-0000-4000-8000-000000000001"
CLAIM = ClaimOfPod("default", "two-gpus", UID)
NVIDIA_CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
AMD_CONFIG = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "GpuConfig"}


def result(device="gpu-0-128", *, request="gpu", driver=DRIVER, pool=NODE, **more):
    return {"request": request, "driver": driver, "pool": pool, "device": device, **more}


def config(parameters, *, driver=DRIVER, source="FromClaim", **more):
    return {"source": source, "opaque": {"driver": driver, "parameters": parameters}, **more}


def claim(*results, configs=(), uid=UID, **status):
    """As the API server has it."""
    devices = {"results": list(results), "config": list(configs)}
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": devices}, **status}}


def of(found, driver=DRIVER):
    return allocation_of(found, CLAIM, driver, NODE)


def refusal(found, driver=DRIVER):
    with pytest.raises(ClaimError) as caught:
        of(found, driver)
    return str(caught.value)


def test_its_devices_are_those_of_the_driver_in_the_order_of_the_allocation():
    """Others' are theirs to prepare."""
    pods = [{"resource": "pods", "name": "b", "uid": "1"}, {"resource": "pods", "name": "a", "uid": "2"}]
    made = of(
        claim(
            result("gpu-9-137"),
            result("gpu-1", driver="gpu.nvidia.com", pool="elsewhere"),
            result("gpu-1-129", request="other", shareID="s-1"),
            result("gpu-2-130", request="watch", adminAccess=True),
            reservedFor=pods,
        )
    )

    assert made.devices == (
        Allocated("gpu", NODE, "gpu-9-137"),
        Allocated("other", NODE, "gpu-1-129", share_id="s-1"),
        Allocated("watch", NODE, "gpu-2-130", admin_access=True),
    )
    assert made.pods == {"a", "b"}


def test_a_claim_without_devices_of_the_driver_is_nothing_to_prepare():
    assert of(claim()).devices == of(claim(result(driver="x.example"))).devices == ()


def test_a_claim_may_have_as_many_devices_as_the_api_permits():
    assert len(of(claim(*(result(f"gpu-{number}") for number in range(32)))).devices) == 32


def test_the_request_of_a_first_available_device_is_the_part_that_containers_name():
    assert [one.request for one in of(claim(result(request="gpu/large"))).devices] == ["gpu"]


def test_a_claim_that_was_made_anew_is_another_claim():
    """The pod waits for one that is gone."""
    assert "claim default/two-gpus was replaced" in refusal(claim(result(), uid="another"))


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}])
def test_a_claim_without_an_allocation_has_no_devices(status):
    assert "not allocated" in refusal({"metadata": {"uid": UID}, "status": status})


def test_a_device_of_another_nodes_pool_is_not_here():
    """As with a wrong NODE_NAME."""
    assert refusal(claim(result(pool="node-2"))) == (
        "devherd: claim default/two-gpus has the device gpu-0-128 of the pool `node-2`"
        " — the pool of this node is `node-1`"
        " — delete the pod and the claim; set NODE_NAME if the node's name is another"
    )


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "-", "x" * 129, "a b", "a\n"])
def test_what_cannot_be_a_uid_never_becomes_a_file_name(uid):
    with pytest.raises(ClaimError, match="is no uid"):
        allocation_of(claim(result(), uid=uid), ClaimOfPod("a", "b", uid), DRIVER, NODE)


@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
@pytest.mark.parametrize(
    ("driver", "parameters"),
    [
        ("gpu.amd.com", AMD_CONFIG),
        ("gpu.amd.com", {}),
        ("gpu.nvidia.com", NVIDIA_CONFIG),
        ("gpu.nvidia.com", {**NVIDIA_CONFIG, "kind": "MigDeviceConfig"}),
        ("gpu.nvidia.com", {**NVIDIA_CONFIG, "sharing": None}),
        ("gpu.intel.com", {}),
    ],
)
def test_a_configuration_that_asks_for_nothing_is_accepted(driver, parameters, source):
    """Vendors' examples have it."""
    found = claim(result(driver=driver), configs=[config(parameters, driver=driver, source=source)])
    assert len(of(found, driver).devices) == 1


@pytest.mark.parametrize(
    ("driver", "parameters", "key"),
    [
        ("gpu.nvidia.com", {**NVIDIA_CONFIG, "sharing": {"strategy": "TimeSlicing"}}, "sharing.strategy: TimeSlicing"),
        (
            "gpu.nvidia.com",
            {**NVIDIA_CONFIG, "sharing": {"mpsConfig": {"defaultActiveThreadPercentage": 0}}},
            "sharing.mpsConfig.defaultActiveThreadPercentage: 0",
        ),
        ("gpu.nvidia.com", {**NVIDIA_CONFIG, "kind": "VfioDeviceConfig"}, "kind: VfioDeviceConfig"),
        ("gpu.nvidia.com", {**NVIDIA_CONFIG, "apiVersion": "resource.nvidia.com/v9"}, "kind: GpuConfig"),
        ("gpu.amd.com", NVIDIA_CONFIG, "kind: GpuConfig"),
        ("gpu.intel.com", {"list": [{}, {"of": [None, True]}]}, "list.1.of.1: True"),
    ],
)
def test_a_configuration_that_asks_for_something_is_refused_with_the_key(driver, parameters, key):
    """The pod would run without it, and nobody would know."""
    said = refusal(claim(result(driver=driver), configs=[config(parameters, driver=driver)]), driver)
    assert f"`{key}` in the configuration of the claim for {driver} is not served" in said


def test_the_class_is_named_where_it_asks():
    asks = config({"vendor": "wish"}, source="FromClass")
    assert "`vendor: wish` in the configuration of the DeviceClass" in refusal(claim(result(), configs=[asks]))


def test_configurations_of_other_drivers_and_requests_are_skipped():
    others = config({"sharing": {"strategy": "MPS"}}, driver="gpu.nvidia.com")
    elsewhere = config({"vendor": "wish"}, requests=["other", "gpu/small"])
    assert len(of(claim(result(request="gpu/large"), configs=[others, elsewhere])).devices) == 1


@pytest.mark.parametrize("named", ["gpu", "gpu/large"])
def test_a_configuration_counts_for_the_request_that_it_names(named):
    asks = config({"vendor": "wish"}, requests=[named])
    assert "vendor: wish" in refusal(claim(result(request="gpu/large"), configs=[asks]))


def test_of_several_configurations_the_claims_counts_and_of_these_the_last():
    """By which users take back what a class asks for."""
    wish, nothing = {**AMD_CONFIG, "wish": 1}, AMD_CONFIG
    of_class = config(wish, source="FromClass")
    assert len(of(claim(result(), configs=[config(nothing), of_class])).devices) == 1
    assert len(of(claim(result(), configs=[config(wish), config(nothing)])).devices) == 1
    assert "wish: 1" in refusal(claim(result(), configs=[config(nothing), config(wish)]))


def test_a_device_stands_against_another_claim_unless_it_is_shared_or_for_administrators():
    plain, first, second = (Allocated("r", NODE, "d", share_id=share) for share in ("", "a", "b"))
    admin = Allocated("r", NODE, "d", admin_access=True)

    assert plain.excludes(plain)
    assert plain.excludes(first)
    assert first.excludes(plain)
    assert not first.excludes(second)
    assert not plain.excludes(admin)
    assert not admin.excludes(plain)
    assert not plain.excludes(Allocated("r", NODE, "e"))


def test_what_another_claim_has_is_seen_by_its_uid_driver_and_device():
    found = claim(result("gpu-1-129"), reservedFor=[{"resource": "pods", "name": "p"}])
    assert has(found, UID, DRIVER, "gpu-1-129")
    assert not has(found, "another", DRIVER, "gpu-1-129")
    assert not has(found, UID, "gpu.nvidia.com", "gpu-1-129")
    assert not has(found, UID, DRIVER, "gpu-0-128")
    assert not has({"metadata": {"uid": UID}}, UID, DRIVER, "gpu-1-129")
    assert pods_of(found) == ["p"]


LEAVES = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5)
WORDS = some.sampled_from([DRIVER, NODE, UID, "gpu", "gpu/large", "FromClaim", "FromClass", "GpuConfig", "pods"])
KEYS = some.sampled_from(
    [
        "metadata",
        "status",
        "uid",
        "allocation",
        "devices",
        "results",
        "config",
        "request",
        "driver",
        "pool",
        "device",
        "shareID",
        "adminAccess",
        "source",
        "requests",
        "opaque",
        "parameters",
        "apiVersion",
        "kind",
        "reservedFor",
        "resource",
        "name",
    ]
)
ANYTHING = some.recursive(
    LEAVES | WORDS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(KEYS | some.text(max_size=3), inner, max_size=6),
    max_leaves=30,
)


def mostly(right):
    """What is right there, or anything."""
    return right | right | right | ANYTHING


RESULTS = some.fixed_dictionaries(
    {
        "request": mostly(some.sampled_from(["gpu", "gpu/large"])),
        "driver": mostly(some.just(DRIVER)),
        "pool": mostly(some.just(NODE)),
        "device": mostly(some.just("gpu-0-128")),
    },
    optional={"shareID": ANYTHING, "adminAccess": ANYTHING},
)
OPAQUE = some.fixed_dictionaries({"driver": mostly(some.just(DRIVER)), "parameters": ANYTHING})
CONFIGS = some.fixed_dictionaries(
    {"source": mostly(some.just("FromClaim")), "opaque": mostly(OPAQUE)}, optional={"requests": ANYTHING}
)
DEVICES = some.fixed_dictionaries(
    {"results": mostly(some.lists(mostly(RESULTS), max_size=3)), "config": mostly(some.lists(CONFIGS, max_size=2))}
)
CLAIMS = some.fixed_dictionaries(
    {
        "metadata": mostly(some.just({"uid": UID})),
        "status": mostly(
            some.fixed_dictionaries(
                {"allocation": mostly(some.fixed_dictionaries({"devices": mostly(DEVICES)}))},
                optional={"reservedFor": ANYTHING},
            )
        ),
    }
)


@given(found=CLAIMS | some.dictionaries(KEYS, ANYTHING, max_size=4))
def test_whatever_a_claim_contains_it_is_read_or_refused_in_one_line(found):
    """It comes from others."""
    assert all(isinstance(name, str) for name in pods_of(found))
    assert has(found, UID, DRIVER, "gpu-0-128") in (True, False)
    said = ""
    try:
        made = of(found).devices
    except ClaimError as error:
        made, said = (), str(error)
    assert said.isprintable()
    assert all(one.pool == NODE and one.device and "/" not in one.request for one in made)


def test_a_claim_that_is_nested_without_end_is_refused():
    """What can be parsed may still be too deep for a function that calls itself."""
    deep = {}
    for _ in range(5000):
        deep = {"a": [deep]}
    assert of(claim(result(), configs=[config(deep)])).devices
    assert "`metadata.uid` is `a map`" in refusal({"metadata": {"uid": deep}})
