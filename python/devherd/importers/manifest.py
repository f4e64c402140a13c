"""Kubernetes objects: the containers of workloads, the files of ConfigMaps, kustomize's patches, values of charts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from devherd.errors import UsageError
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


@dataclass(frozen=True, slots=True)
class ChartValues:
    """The values of a chart in the object by which a cluster installs it."""

    chart: str
    """The chart's name."""
    content: Mapping[str, Any]
    losses: tuple[str, ...] = ()
    """Notes on values that the object takes from elsewhere."""


def chart_values(item: Mapping[str, Any]) -> Iterator[ChartValues]:
    """The values in an object of Flux, of Argo CD, or of the Helm controller of k3s and RKE2.

    <https://fluxcd.io/flux/components/helm/helmreleases/>, <https://docs.k3s.io/add-ons/helm>,
    <https://argo-cd.readthedocs.io/en/stable/user-guide/helm/>. Raises UsageError for values that are not keys.
    """
    spec, name = section(item, "spec"), str(section(item, "metadata").get("name", ""))
    match kind_of(item):
        case "helm.toolkit.fluxcd.io/HelmRelease":
            chart = section(section(spec, "chart"), "spec").get("chart") or section(spec, "chartRef").get("name")
            yield ChartValues(_chart_name(chart), section(spec, "values"), _losses(spec, "valuesFrom"))
        case "helm.cattle.io/HelmChart" | "helm.cattle.io/HelmChartConfig":
            content = content_of(spec.get("valuesContent"), f"spec.valuesContent of {name}")
            yield ChartValues(_chart_name(spec.get("chart") or name), content, _losses(spec, "set", "valuesSecrets"))
        case "argoproj.io/Application":
            yield from _of_sources(spec, name)
        case "argoproj.io/ApplicationSet":
            yield from _of_sources(section(section(spec, "template"), "spec"), name)


def _of_sources(spec: Mapping[str, Any], name: str) -> Iterator[ChartValues]:
    for source in filter(None, [section(spec, "source"), *map(_dict, _list(spec.get("sources")))]):
        helm = section(source, "helm")
        content = section(helm, "valuesObject") or content_of(helm.get("values"), f"helm.values of {name}")
        losses = _losses(helm, "parameters", "valueFiles", "fileParameters")
        yield ChartValues(_chart_name(source.get("chart") or source.get("path")), content, losses)


def _chart_name(text: Any) -> str:
    """The name of a chart in `nvidia-device-plugin`, `./charts/NAME`, `oci://…/NAME`, `https://…/NAME-0.17.1.tgz`."""
    return re.sub(r"(-v?\d[^/]*)?\.tgz$", "", str(text or "")).rstrip("/").rpartition("/")[2]


def _losses(content: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    return tuple(f"{key} is left out: write what it sets into the values" for key in keys if content.get(key))


def content_of(text: Any, place: str) -> Mapping[str, Any]:
    """The keys of a YAML or JSON text; empty for None. Raises UsageError for another text."""
    content = {} if text is None else _content(text)
    if content is None:
        raise UsageError(
            f"`{place}` cannot be read", "it is not YAML with keys", "correct it, or give the values alone"
        )
    return content


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
