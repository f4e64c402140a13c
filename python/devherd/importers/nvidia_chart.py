"""The values file of the chart of NVIDIA's plugin: variables of its container, and configurations by name.

The chart sets a variable where a value is given: `templates/daemonset-device-plugin.yml` of the release 0.20.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from devherd.errors import UsageError
from devherd.importers.given import Given
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
    files = list(files_of(config.take("map", {})))
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


def files_of(configurations: Any) -> Iterator[File]:
    """Configurations by name, each as the text of a file. Raises UsageError for one that cannot be read."""
    for name, written in (configurations or {}).items():
        try:
            content = yaml.safe_load(str(written))
        except yaml.YAMLError as error:
            raise UsageError(f"the configuration {name} is not valid YAML", str(error), "correct it") from error
        yield File(content if isinstance(content, Mapping) else {}, str(name))


def text(value: Any) -> str:
    """A value as the chart writes it into a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)
