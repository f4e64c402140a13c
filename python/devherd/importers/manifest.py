"""Kubernetes objects: the containers of workloads, the files of ConfigMaps, kustomize's patches."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from devherd.importers.plugin import ConfigFile, Invocation, without_shell


def is_manifest(document: Any) -> bool:
    """Whether it is a Kubernetes object, or several in a list."""
    return isinstance(document, Mapping) and {"kind", "apiVersion"} <= document.keys()


def objects(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object of a manifest: the manifest itself, or the objects of a list."""
    if "items" not in document:
        yield document
    for item in _list(document.get("items")):
        if is_manifest(item):
            yield from objects(item)


def kind_of(item: Mapping[str, Any]) -> str:
    """The kind of an object with its API group, without version: `apps/DaemonSet`."""
    return f"{str(item['apiVersion']).partition('/')[0]}/{item['kind']}"


def parts(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """The containers and the files of an object."""
    if item["kind"] == "ConfigMap":
        for key, text in _dict(item.get("data")).items():
            content = _content(text)
            if content is not None:
                yield ConfigFile(content, str(key))
    spec = _dict(item.get("spec"))
    pod = _dict(_dict(spec.get("template")).get("spec")) or spec
    workload = str(_dict(item.get("metadata")).get("name", ""))
    for container in _list(pod.get("containers")):
        if isinstance(container, Mapping):
            yield invocation(container, workload)


def invocation(container: Mapping[str, Any], workload: str = "") -> Invocation:
    """How a container's program is started."""
    words = [str(word) for key in ("command", "args") for word in _list(container.get(key))]
    variables = [_dict(variable) for variable in _list(container.get("env"))]
    return Invocation(
        without_shell(words),
        {
            str(variable["name"]): None if "valueFrom" in variable else _text(variable.get("value"))
            for variable in variables
            if "name" in variable
        },
        str(container.get("image", "")),
        str(container.get("name", "")),
        workload,
    )


def is_kustomization(document: Any) -> bool:
    """Whether it is a kustomization file, in which `kind` is optional."""
    if not isinstance(document, Mapping):
        return False
    lists = {key for key in ("resources", "patches", "components", "bases") if isinstance(document.get(key), list)}
    return document.get("kind") == "Kustomization" or ("kind" not in document and bool(lists))


def is_patch(document: Any) -> bool:
    """Whether it is a JSON patch (RFC 6902), as kustomize's overlays have."""
    return (
        isinstance(document, list)
        and bool(document)
        and all(isinstance(change, Mapping) and {"op", "path"} <= change.keys() for change in document)
    )


def patched(document: list[Mapping[str, Any]]) -> Iterator[Invocation]:
    """The containers and arguments that a JSON patch adds: one invocation for each container that it changes."""
    words: dict[str, list[str]] = {}
    for change in document:
        container, is_arguments, _ = str(change["path"]).partition("/args")
        value = change.get("value")
        if is_arguments:
            words.setdefault(container, []).extend(map(str, value if isinstance(value, list) else [value]))
        elif isinstance(value, Mapping) and {"image", "args", "command"} & value.keys():
            yield invocation(value)
    for each in words.values():
        yield Invocation(each)


def section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A mapping inside another; empty if absent."""
    return _dict(content.get(key))


def _content(text: Any) -> Mapping[str, Any] | None:
    try:
        document = yaml.safe_load(str(text))
    except yaml.YAMLError:
        return None
    return document if isinstance(document, Mapping) else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
