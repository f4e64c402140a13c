"""What a file holds, and for which plugin: a configuration file, a list of flags, or manifests that carry either."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from devherd.config import strict_yaml
from devherd.errors import UsageError
from devherd.importers import amd, command_line, generic, intel, nvidia
from devherd.importers.command_line import Invocation
from devherd.importers.imported import Imported

COMPANIONS = frozenset(
    {"config-manager", "gpu-feature-discovery", "mps-control-daemon", "mount-shm", "k8s-node-labeller"}
)
"""Programs of the plugins' own images that advertise nothing: their containers have no configuration of a plugin."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that can be imported: how its command line and its configuration file, if any, are recognised."""

    flags: frozenset[str]
    is_started_by: Callable[[str, str], bool]
    """Whether a program of this name, in an image of this name, is it."""
    from_command_line: Callable[[Invocation], Imported]
    file_keys: frozenset[str] = frozenset()
    from_file: Callable[[dict[str, Any]], Imported] | None = None
    custom_resource: str = ""
    """`GROUP/KIND` of the object from which an operator starts it."""
    from_spec: Callable[[dict[str, Any]], Imported] | None = None
    """Reads the `spec` of that object."""


PLUGINS = {
    "nvidia": Plugin(
        nvidia.FLAGS,
        lambda program, image: "nvidia-device-plugin" in program or "nvidia/k8s-device-plugin" in image,
        nvidia.from_command_line,
        nvidia.FILE_KEYS,
        nvidia.from_file,
    ),
    "generic": Plugin(
        generic.FLAGS,
        lambda program, image: "generic-device-plugin" in (program or image),
        generic.from_command_line,
        generic.FLAGS | {"devices"},
        generic.from_file,
    ),
    "intel-fpga": Plugin(
        intel.FPGA_FLAGS,
        lambda program, image: "fpga" in (program or image) and "intel" in (program + image),
        intel.from_fpga_command_line,
    ),
    "intel-gpu": Plugin(
        intel.GPU_FLAGS,
        lambda program, image: "gpu" in (program or image) and "intel" in (program + image),
        intel.from_gpu_command_line,
    ),
    "amd": Plugin(
        amd.FLAGS,
        lambda program, image: (program == "k8s-device-plugin" and "nvidia" not in image) or "rocm/" in image,
        amd.from_command_line,
        custom_resource="amd.com/DeviceConfig",
        from_spec=amd.from_device_config,
    ),
}


def import_text(text: str, source: str, plugin: str | None) -> Imported:
    """The devherd configuration that does what the text's plugin would; `plugin` None = find out which.

    Raises UsageError when the text is of no plugin, or of more than one.
    """
    try:
        documents = [text] if _is_command_line(text) else strict_yaml.parse_all(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not valid YAML", strict_yaml.explain(error), "correct it") from error
    found = [imported for document in documents for imported in _import(document, plugin)]
    if not found:
        raise UsageError(
            f"{source} holds no configuration that can be imported",
            f"it is not a configuration, flag list or manifest of {' or '.join(PLUGINS)}",
            "say whose it is with --plugin",
        )
    if len(found) > 1:
        names = ", ".join(imported.plugin for imported in found)
        raise UsageError(f"{source} holds {len(found)} configurations", f"of {names}", "give a file with one of them")
    return found[0]


def _is_command_line(text: str) -> bool:
    """Whether it begins with a flag or a known program: what stands behind them need be no YAML."""
    first = next(iter(text.split()), "")
    invocation = Invocation([first])
    return bool(re.match(r"--?[a-z]", first)) or any(
        plugin.is_started_by(invocation.program, "") for plugin in PLUGINS.values() if not first.endswith(":")
    )


def _import(document: Any, plugin: str | None) -> Iterator[Imported]:
    if isinstance(document, str):
        yield from _of_command_line(Invocation(command_line.started(command_line.split(document))), plugin)
    elif isinstance(document, list) and document and all(isinstance(word, str) for word in document):
        yield from _of_command_line(Invocation(command_line.started(document)), plugin)
    elif isinstance(document, dict) and "kind" in document and "apiVersion" in document:
        yield from _of_manifest(document, plugin)
    elif isinstance(document, dict):
        yield from _of_file(document, plugin)


def _of_manifest(manifest: dict[str, Any], plugin: str | None) -> Iterator[Imported]:
    """A list of manifests, the containers of a DaemonSet or Pod, the files of a ConfigMap, an operator's own object."""
    for item in _list(manifest.get("items")):
        yield from _import(item, plugin)
    if manifest["kind"] == "ConfigMap":
        for text in _dict(manifest.get("data")).values():
            yield from _of_embedded_file(text, plugin)
    spec = _dict(manifest.get("spec"))
    name = f"{str(manifest['apiVersion']).partition('/')[0]}/{manifest['kind']}"
    for one in [PLUGINS[plugin]] if plugin else PLUGINS.values():
        if one.from_spec is not None and one.custom_resource == name:
            yield one.from_spec(spec)
    pod = _dict(_dict(spec.get("template")).get("spec")) or spec
    for container in _list(pod.get("containers")):
        if isinstance(container, dict):
            yield from _of_container(container, plugin)


def _of_embedded_file(text: Any, plugin: str | None) -> Iterator[Imported]:
    try:
        document = yaml.safe_load(str(text))
    except yaml.YAMLError:
        return
    if isinstance(document, dict):
        yield from _of_file(document, plugin)


def _of_container(container: dict[str, Any], plugin: str | None) -> Iterator[Imported]:
    words = [str(word) for key in ("command", "args") for word in _list(container.get(key))]
    variables = [_dict(variable) for variable in _list(container.get("env"))]
    environment = {
        str(variable["name"]): str(variable["value"])
        for variable in variables
        if "name" in variable and "value" in variable
    }
    invocation = Invocation(command_line.started(words), environment, str(container.get("image", "")))
    wanted = [plugin] if plugin else list(PLUGINS)
    if invocation.program in COMPANIONS:
        return
    for name in wanted:
        if PLUGINS[name].is_started_by(invocation.program, invocation.image):
            yield PLUGINS[name].from_command_line(invocation)
            return


def _of_command_line(invocation: Invocation, plugin: str | None) -> Iterator[Imported]:
    if plugin is None:
        by_program = [name for name, one in PLUGINS.items() if one.is_started_by(invocation.program, "")]
        given = invocation.flag_names()
        by_flags = [name for name, one in PLUGINS.items() if given and given <= one.flags]
        candidates = by_program or by_flags
        if len(candidates) > 1:
            raise UsageError(
                "these flags could be of more than one plugin", " or ".join(candidates), "say which with --plugin"
            )
        plugin = candidates[0] if candidates else None
    if plugin is not None:
        yield PLUGINS[plugin].from_command_line(invocation)


def _of_file(content: dict[str, Any], plugin: str | None) -> Iterator[Imported]:
    for name in [plugin] if plugin else list(PLUGINS):
        from_file = PLUGINS[name].from_file
        if from_file is not None and (plugin or (content and content.keys() <= PLUGINS[name].file_keys)):
            yield from_file(content)
            return


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
