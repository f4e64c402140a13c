"""Keys of the configuration file as data, the sample file made of them, and examples."""

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from devherd.config.model import Config
from devherd.config.types import Form, as_written

REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section: the form of its value, its default as written in the file, its description for users."""

    name: str
    field: str
    """The name of its field in the model."""
    form: str
    default: str
    """In YAML, or `required`; empty for a section that may be left out."""
    description: str
    section: type[BaseModel] | None
    """The model of its value, or of the items of its list or mapping; None if these are no sections."""
    is_list: bool
    is_map: bool
    """Whether its value has sections by names that users choose."""

    @property
    def is_many(self) -> bool:
        """Whether there can be several of its section."""
        return self.is_list or self.is_map

    @property
    def prefix(self) -> str:
        """Its name in front of the keys of its section: `pools[].`, `define.NAME.`."""
        return f"{self.name}[]." if self.is_list else f"{self.name}.NAME." if self.is_map else f"{self.name}."


def keys_of(section: type[BaseModel]) -> Iterator[Key]:
    """The keys of a section, in their order."""
    described(section)
    for name, field in section.model_fields.items():
        inner = section_of(field)
        is_list, is_map = _is_list(field.annotation), is_map_of_sections(field)
        yield Key(
            name=field.alias or name,
            field=name,
            form=_form(field.annotation, field.metadata),
            default="" if inner and not (is_list or is_map or field.is_required()) else _default(field),
            description=" ".join((field.description or _described(inner)).split()),
            section=inner,
            is_list=is_list,
            is_map=is_map,
        )


@functools.cache
def described(section: type[BaseModel]) -> type[BaseModel]:
    """The model, with the docstrings of its keys as descriptions, also in its schema.

    pydantic can do that while it makes a model: it would read and parse the source at each start.
    """
    for inner in filter(None, map(section_of, section.model_fields.values())):
        described(inner)
    texts = dict(itertools.chain.from_iterable(map(_docstrings, reversed(section.__mro__))))
    for name, field in section.model_fields.items():
        field.description = field.description or texts.get(name)
    section.model_rebuild(force=True)
    return section


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """The docstrings behind the fields of a class, by name."""
    if not issubclass(kind, BaseModel) or kind is BaseModel:
        return
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    for field, text in itertools.pairwise(getattr(made, "body", ())):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, inspect.cleandoc(words)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a key's value, or of the items of its list or mapping; None if these are no sections."""
    return next(filter(_is_section, _candidates(field.annotation)), None)


def is_map_of_sections(field: FieldInfo) -> bool:
    """Whether a key's value has sections by names that users choose."""
    return get_origin(field.annotation) is dict and section_of(field) is not None


def _candidates(annotation: Any) -> Iterator[Any]:
    """A type, and the types in it: those of `list[X] | None`, too."""
    yield annotation
    for inner in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from _candidates(inner)


def _described(section: type[BaseModel] | None) -> str:
    """The description of a section, used for a key without one of its own."""
    return (section.__doc__ or "") if section else ""


def _default(field: FieldInfo) -> str:
    return REQUIRED if field.is_required() else as_written(field.default, field)


def _form(annotation: Any, metadata: list[Any]) -> str:
    """The form of a value as text."""
    given = [each for each in metadata if isinstance(each, Form)]
    if given:
        return given[-1].name
    arguments = get_args(annotation)
    if arguments:
        return _compound(get_origin(annotation), arguments, metadata)
    if _is_section(annotation):
        return "section"
    return {bool: "`true`, `false`", int: _number(metadata)}.get(annotation, "text")


def _compound(origin: Any, arguments: tuple[Any, ...], metadata: list[Any]) -> str:
    if origin is Annotated:
        return _form(arguments[0], [*arguments[1:], *metadata])
    if origin is Literal:
        return ", ".join(f"`{as_written(choice)}`" for choice in arguments)
    if origin is list:
        return "list" if _is_section(arguments[0]) else f"list: {_form(arguments[0], [])}"
    if origin is dict:
        return (
            f"{_form(arguments[1], [])}s by name"
            if _is_section(arguments[1])
            else f"by name: {_form(arguments[1], [])}"
        )
    return " or ".join(_form(each, metadata) for each in arguments if each is not type(None))


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _number(metadata: list[Any]) -> str:
    """The form of a whole number: `whole number, 0 to 64`."""
    metadata = [each for one in metadata for each in getattr(one, "metadata", [one])]
    least = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in metadata if isinstance(each, Le)), None)
    bounds = "" if least is None else f", {least} to {most}" if most is not None else f", at least {least}"
    return f"whole number{bounds}"


def _is_list(annotation: Any) -> bool:
    return any(get_origin(kind) is list for kind in (annotation, *get_args(annotation)))


EXAMPLES: dict[str, str] = {
    "scan": """\
# Scan the host every 30 seconds if no event occurs.
scan: {period: 30s}
""",
    "health": """\
# Wait longer before a device is Healthy again, and before a missing one is forgotten.
health: {recover_after: 10, forget_after: 1h}
""",
    "health.kernel_log": """\
# One of the shipped rules that are off, and a rule of your own.
health:
  kernel_log:
    optional: [mlx5-high-temperature]
    rules:
      - {name: nic-reset, contains: "NIC Link is Down", pattern: '(?P<bdf>[0-9a-f:.]+): .*NIC Link is Down'}
""",
    "health.rules": """\
# Ignore degraded links of RDMA cards; elsewhere they count after 5 minutes.
health:
  rules:
    - {match: {vendor: rdma}, reason: link-degraded, action: ignore}
    - {reason: link-degraded, action: unhealthy, after: 5m}
""",
    "health.xid": """\
# As NVIDIA's plugin, except for two codes.
health: {xid: {policy: plugin, 94: ignore, 31: warn}}
""",
    "health.external": """\
# Run your own program each minute.
health:
  external:
    - name: bandwidth
      match: {vendor: nvidia}
      command: [/opt/checks/bandwidth, --quick]
      interval: 1m
      timeout: 30s
""",
    "kubernetes": """\
kubernetes: {node_condition: true}
""",
    "node_labels": """\
# Through Node Feature Discovery, without AMD's second set of names.
node_labels: {write: node_feature, omit: "beta.amd.com/*"}
""",
    "exporter": """\
# Each device once, however many containers share it.
exporter: {device_metrics: faults}
""",
    "vendors": """\
vendors: {amd: {enabled: false}}
""",
    "vendors.intel_fpga": """\
vendors: {intel_fpga: {mode: region}}
""",
    "vendors.nvidia": """\
# MIG devices by profile, given to containers by CDI.
vendors: {nvidia: {mig_strategy: mixed, device_list_strategy: [cdi-cri]}}
""",
    "vendors.nvidia.imex": """\
vendors: {nvidia: {imex: {channel_ids: [0], required: true}}}
""",
    "vendors.amd": """\
vendors: {amd: {naming: mixed}}
""",
    "vendors.intel_gpu": """\
# Each card for ten containers, filled one after the other.
vendors: {intel_gpu: {shared_devices: 10, allocation_policy: packed}}
""",
    "vendors.xilinx_fpga": """\
vendors: {xilinx_fpga: {u30_alloc_unit: device}}
""",
    "vendors.rdma": """\
# One pool of all ports of a card type, for 63 containers.
vendors:
  rdma:
    mode: shared
    pools:
      - {name: rdma/hca_shared, rdma_hca_max: 63, selectors: {vendors: [15b3], link_types: [infiniband]}}
""",
    "classes.define": """\
# A shipped class, and one of your own.
classes:
  enable: [intel-npu]
  define:
    widget:
      find: {class: widget, name: "widget{n}"}
      facts: {model: {read: model}}
      plugin: {resource: "acme.example/{model}", shares: 4}
""",
    "resources": """\
# All H200s but one under a name of their own, each for four containers; A100s are not advertised.
resources:
  - match: {vendor: nvidia, model: "*H200*", exclude: [{pci_address: "0000:3b:00.0"}]}
    name: nvidia.com/h200
    sharing: {replicas: 4}
    preferred: packed
  - match: {vendor: nvidia, model: "*A100*"}
    advertise: false
""",
    "generic": """\
# /dev/kvm for up to ten containers at once, and each adapter of one kind.
generic:
  - {name: devic.es/kvm, groups: [{count: 10, paths: [{path: /dev/kvm}]}]}
  - {name: devic.es/serial, groups: [{usb: [{vendor: "0403", product: "6001"}], separate: true}]}
""",
    "simulated": """\
simulated:
  - {name: example.com/gpu, count: 8, numa_nodes: 2}
""",
}
"""Examples by key path. Each is a complete configuration; its comments describe it."""


RARE = frozenset(
    {
        # Set by an option of the command line, a unit or a manifest.
        "host_root",
        "kubelet_dir",
        "kubelet_root_dir",
        "registration",
        "run_dir",
        "state_dir",
        "log_format",
        # Right by default on every host that we know.
        "cdi_dir",
        "kubelet_check",
        "scan.events",
        "health.breaker",
        "health.flapping",
        "health.amd_exporter",
        "health.amd_nic_exporter",
        "health.xpumd",
        "health.amd_kfd",
        "health.kernel_log.optional",
        "ledger.ignore",
        "node_labels.feature_file",
        "vendors.nvidia.cdi_annotation_prefix",
        "vendors.nvidia.cdi_hook_path",
        "vendors.nvidia.device_discovery_strategy",
        "vendors.rdma.device_info_dir",
        # For one kind of card.
        "vendors.xilinx_fpga.u30_name_convention",
        "vendors.xilinx_fpga.u30_alloc_unit",
    }
)
"""Keys that hardly anybody sets: only `devherd config sample --all` has them."""
WIDTH = 110
_HEAD = """\
# The configuration of devherd: {keys}.
#
# To change a key, remove the `#` before it. Durations are written like `5s`, `250ms` or `1m30s`.
# `devherd config check FILE` shows errors in a file, and the resources that result on this host.
"""
_USUAL = "the keys that are usually set, with their defaults. `devherd config sample --all` has the others"


def sample(*, is_whole: bool = False) -> str:
    """The sample file: both as it is and without the `#` before settings, it is the default configuration.

    Whole, it has every key, and the keys of each list's entries; otherwise those that are usually set, and examples.
    """
    head = _HEAD.format(keys="every key with its default" if is_whole else _USUAL)
    return "\n".join([head.rstrip(), *_section(Config, (), "", is_whole=is_whole)]) + "\n"


def _section(section: type[BaseModel], above: tuple[str, ...], indent: str, *, is_whole: bool) -> Iterator[str]:
    for key in keys_of(section):
        path = (*above, key.name)
        if not is_whole and ".".join(path) in RARE:
            continue
        if not above:
            yield ""
        yield from _wrapped(f"{key.description} {_form_of_key(key)}".rstrip(), f"{indent}# ")
        if key.section and not key.is_many:
            yield f"{indent}{key.name}:"
            yield from _section(key.section, path, f"{indent}  ", is_whole=is_whole)
            continue
        yield f"{indent}#{key.name}: {key.default}"
        if key.section:
            yield from _entries(key.section, ".".join(path), indent, is_whole=is_whole)


def _entries(section: type[BaseModel], path: str, indent: str, *, is_whole: bool) -> Iterator[str]:
    """The keys of an entry of a list, and an example."""
    if is_whole:
        yield f"{indent}# Keys of an entry:"
        for name, key in _keys_within(section):
            text = f"{name}: {key.description} {_form_of_key(key, with_default=True)}".rstrip()
            yield from _wrapped(text, f"{indent}#   ", f"{indent}#     ")
    if path in EXAMPLES:
        yield f"{indent}# Example:"
        yield from (f"{indent}#   {line}" for line in EXAMPLES[path].splitlines())


def _keys_within(section: type[BaseModel], above: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys_of(section):
        name = f"{above}{key.name}"
        yield name, key
        if key.section:
            yield from _keys_within(key.section, f"{above}{key.prefix}")


def _form_of_key(key: Key, *, with_default: bool = False) -> str:
    """The form of a key's value, whether it is required, and its default `with_default`."""
    parts = [] if key.section else [key.form]
    if key.default == REQUIRED:
        parts.append(REQUIRED)
    elif with_default and key.default not in {"", "null", "[]"}:
        parts.append(f"default {key.default}")
    return f"({'; '.join(parts)})" if parts else ""


def _wrapped(text: str, first: str, later: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later or first,
        break_on_hyphens=False,
        break_long_words=False,
    )
