"""What a text holds, and for which plugin: configuration files, lists of flags, or manifests that carry either."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from devherd.config import strict_yaml
from devherd.config.yaml_faults import fault_of
from devherd.errors import UsageError
from devherd.importers import manifest, umbrella
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation, split
from devherd.importers.plugin import File, Plugin
from devherd.importers.plugins import COMPANIONS, PLUGINS

_Part = Invocation | File
_Owned = tuple[Plugin, _Part]


def import_text(text: str, source: str, plugin: str | None, *, with_ignored: bool = False) -> list[Imported]:
    """The devherd configurations that do what the plugins of a text would; `plugin` None = find out which.

    A command line and a file of one plugin belong together; several files of one plugin are several configurations,
    each with the name of its file. `with_ignored`: what NVIDIA's plugin reads and ignores has its effect. Raises
    UsageError when there is none, or where nobody can know whose it is.
    """
    try:
        documents = [text] if _is_command_line(text) else strict_yaml.parse_all(text)
    except yaml.YAMLError as error:
        fault = fault_of(error, text)
        raise UsageError(f"{source}:{fault.position} is not valid YAML", fault.what, fault.cure) from error
    wanted = PLUGINS[plugin] if plugin else None
    if wanted and not any(document is not None for document in documents):
        documents = [{}]
    owned = [each for document in documents for each in _owned(document, wanted)]
    if not owned:
        raise _nothing_found(documents, source, plugin)
    plugins = {owner.name: owner for owner, _ in owned}.values()
    return [each for owner in plugins for each in _translated(owner, owned, with_ignored=with_ignored)]


def _translated(plugin: Plugin, owned: list[_Owned], *, with_ignored: bool) -> Iterator[Imported]:
    """Every configuration of a plugin: of each way in which it is started with each file, where it has any."""
    parts = [part for owner, part in owned if owner is plugin]
    files: list[File | None] = [part for part in parts if isinstance(part, File)]
    invocations = [part for part in parts if isinstance(part, Invocation)]
    started = [each for place, each in enumerate(invocations) if each not in invocations[:place]] or [Invocation()]
    for invocation in started:
        for file in files or [None]:
            imported = plugin.imported(invocation, file and file.content, with_ignored=with_ignored)
            names = [invocation.workload or invocation.container] if len(started) > 1 else []
            imported.name = "-".join([*names, file.name if file else ""]).strip("-") or plugin.name
            yield imported


def _is_command_line(text: str) -> bool:
    """Whether it begins with a flag or a known program: what stands behind them need be no YAML."""
    first = next(iter(text.split()), "")
    if re.match(r"--?[a-z]", first):
        return True
    program = Invocation([first])
    return not first.endswith(":") and any(plugin.is_started_by(program) for plugin in PLUGINS.values())


def _owned(document: Any, wanted: Plugin | None) -> Iterator[_Owned]:
    """The parts of a document, each with its plugin; those of no plugin are left out."""
    if isinstance(document, str):
        yield from _of_command_line(Invocation(split(document)), wanted)
    elif manifest.is_patch(document):
        for invocation in manifest.patched(document):
            yield from _of_command_line(invocation, wanted)
    elif isinstance(document, list) and document and all(isinstance(word, str) for word in document):
        yield from _of_command_line(Invocation(document), wanted)
    elif manifest.is_manifest(document):
        yield from _of_manifest(document, wanted)
    elif isinstance(document, Mapping):
        yield from _of_mapping(document, wanted)


def _of_manifest(document: Mapping[str, Any], wanted: Plugin | None) -> Iterator[_Owned]:
    containers = []
    for item in manifest.objects(document):
        for plugin in [wanted] if wanted else PLUGINS.values():
            if start := plugin.kinds.get(manifest.kind_of(item)):
                yield from ((plugin, part) for part in start(item))
        for part in manifest.parts(item):
            if isinstance(part, Invocation):
                containers.append(part)
            else:
                yield from _of_file(part, wanted)
    candidates = [container for container in containers if not COMPANIONS & set(container.names)]
    named = [(owner, each) for each in candidates if (owner := _named(each, wanted))]
    if wanted and not named:
        named = [(wanted, each) for each in candidates if each.flag_names() <= wanted.flags]
    yield from named


def _of_command_line(invocation: Invocation, wanted: Plugin | None) -> Iterator[_Owned]:
    if COMPANIONS & set(invocation.names):
        return
    plugin = wanted or _named(invocation, None) or _by_flags(invocation)
    if plugin:
        yield plugin, invocation


def _of_mapping(content: Mapping[str, Any], wanted: Plugin | None) -> Iterator[_Owned]:
    """A configuration file, or the values of a chart. Raises UsageError where it is neither of the wanted plugin."""
    if manifest.is_kustomization(content):
        return
    if umbrella.is_umbrella(content):
        yield from umbrella.parts(content, wanted)
        return
    for plugin in [wanted] if wanted else PLUGINS.values():
        if plugin.is_file(content) or (wanted and not content):
            yield plugin, File(content)
            return
        if chart := plugin.chart_of(content):
            yield from ((plugin, part) for part in chart.started(content))
            return
    if wanted:
        raise UsageError(
            f"this is not a configuration of {wanted.name}",
            f"its keys are {', '.join(map(str, content)) or 'none'}",
            "give the plugin's file, its flags, its manifest or its chart's values",
        )


def _of_file(file: File, wanted: Plugin | None) -> Iterator[_Owned]:
    for plugin in [wanted] if wanted else PLUGINS.values():
        if plugin.is_file(file.content):
            yield plugin, file
            return


def _named(invocation: Invocation, wanted: Plugin | None) -> Plugin | None:
    """The plugin after which something in it is called."""
    return next(
        (plugin for plugin in ([wanted] if wanted else PLUGINS.values()) if plugin.is_started_by(invocation)), None
    )


def _by_flags(invocation: Invocation) -> Plugin | None:
    """The only plugin that has all these flags. Raises UsageError where there are more."""
    given = invocation.flag_names()
    candidates = [plugin for plugin in PLUGINS.values() if given and given <= plugin.flags]
    if len(candidates) > 1:
        names = " or ".join(plugin.name for plugin in candidates)
        raise UsageError("these flags could be of more than one plugin", names, "say which with --plugin")
    return candidates[0] if candidates else None


def _nothing_found(documents: list[Any], source: str, plugin: str | None) -> UsageError:
    what = f"{source} is not recognised as a configuration of another plugin"
    if any(map(manifest.is_kustomization, documents)):
        return UsageError(what, "a kustomization holds no settings", "render it: kubectl kustomize DIRECTORY")
    objects = [item for each in documents if manifest.is_manifest(each) for item in manifest.objects(each)]
    containers = [part for item in objects for part in manifest.parts(item) if isinstance(part, Invocation)]
    containers += [part for each in documents if manifest.is_patch(each) for part in manifest.patched(each)]
    companions = sorted({name for each in containers for name in each.names if name in COMPANIONS})
    if companions:
        return UsageError(what, f"{', '.join(companions)} advertises no devices", "give the manifest of the plugin")
    if hint := umbrella.hint(documents):
        return UsageError(what, *hint)
    if plugin:
        return UsageError(what, f"nothing in it is of {plugin}", "say whose it is with --plugin")
    if all(document in (None, "") for document in documents):
        return UsageError(what, "it is empty", "give the plugin's file, its flags, its manifest or its chart's values")
    known = ", ".join(sorted(PLUGINS))
    return UsageError(
        what, f"known are configurations, flag lists and manifests of {known}", "say whose it is with --plugin"
    )
