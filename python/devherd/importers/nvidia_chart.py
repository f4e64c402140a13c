"""The values file of the chart of NVIDIA's plugin: variables of its container, and configurations by name.

The chart sets a variable where a value is given: `templates/daemonset-device-plugin.yml` of the release 0.20.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from devherd.config import strict_yaml
from devherd.config.yaml_faults import fault_of
from devherd.errors import UsageError
from devherd.importers.given import Given, not_keys
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import File

_VARIABLES = {
    "migStrategy": "MIG_STRATEGY",
    "failOnInitError": "FAIL_ON_INIT_ERROR",
    "compatWithCPUManager": "PASS_DEVICE_SPECS",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "deviceIDStrategy": "DEVICE_ID_STRATEGY",
    "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
    "nvidiaDevRoot": "NVIDIA_DEV_ROOT",
    "gdrcopyEnabled": "GDRCOPY_ENABLED",
    "gdsEnabled": "GDS_ENABLED",
    "mofedEnabled": "MOFED_ENABLED",
    "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
}
_OF_KUBERNETES = frozenset(
    {"nameOverride", "fullnameOverride", "namespaceOverride", "selectorLabelsOverride", "allowDefaultNamespace"}
    | {"imagePullSecrets", "image", "updateStrategy", "podAnnotations", "podSecurityContext", "securityContext"}
    | {"resources", "nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName"}
)
"""How the plugin's pods are run: a matter of devherd's own manifests."""
_OTHERS = frozenset({"config", "devicePlugin", "gfd", "nfd", "mps", "cdi"})


def is_values(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has values of this chart, and nothing else."""
    ours = _VARIABLES.keys() | _OTHERS
    return bool(content.keys() & ours) and content.keys() <= ours | _OF_KUBERNETES


def from_values(content: Mapping[str, Any]) -> Iterator[Invocation | File]:
    """The container that the chart makes, and the files of its ConfigMap."""
    given = Given(content)
    environment: dict[str, str | None] = {
        variable: text(value) for key, variable in _VARIABLES.items() if (value := given.take(key)) is not None
    }
    mps_root, cdi = given.section("mps").take("root"), given.section("cdi")
    more = {"MPS_ROOT": mps_root} | {
        "NVIDIA_CDI_HOOK_PATH": cdi.take("nvidiaHookPath"),
        "CDI_FEATURE_FLAGS": cdi.take("featureFlags"),
    }
    config = given.section("config")
    files = list(files_of("config.map", config.take("map")))
    if files or config.take("name"):
        environment["CONFIG_FILE"] = "/config/config.yaml"
    notes = []
    if default := config.take("default"):
        notes.append(f"config.default is left out: `devherd run --configs DIR --config-default {default}` has it")
    config.take("fallbackStrategies")
    given.section("devicePlugin").take("enabled")
    if left := ", ".join(given.left()):
        notes.append(f"{left} left out: settings of the plugin's pods; see devherd's own manifests")
    variables = environment | {name: str(value) for name, value in more.items() if value}
    yield Invocation(environment=variables, notes=tuple(notes))
    yield from files


def files_of(key: str, configurations: Any) -> Iterator[File]:
    """Configurations by name, each as the text of a file; `key` has them. Raises UsageError for one that is none."""
    if configurations is None:
        return
    if not isinstance(configurations, Mapping):
        raise not_keys(key, configurations)
    for name, written in configurations.items():
        content = _parsed(f"{key}.{name}", written) if isinstance(written, str) else written
        if not isinstance(content, Mapping):
            raise not_keys(f"{key}.{name}", content)
        yield File(content, str(name))


def _parsed(key: str, written: str) -> Any:
    try:
        return strict_yaml.parse(written)[0] or {}
    except yaml.YAMLError as error:
        fault = fault_of(error, written)
        line, _, column = fault.position.partition(":")
        where = f"`{key}` is not valid YAML in its line {line}, column {column}"
        raise UsageError(where, fault.what, fault.cure) from error


def text(value: Any) -> str:
    """A value as the chart writes it into a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)
