"""docs/configuration.md: every key of the configuration file, from the models that validate it."""

from collections.abc import Iterator

from pydantic import BaseModel

from devherd.config.checks import FACT_EXAMPLES as FORMS
from devherd.config.checks import FACTS_OF_EVERY_DEVICE, FACTS_OF_VENDOR
from devherd.config.describe import EXAMPLES, REQUIRED, Key, keys_of
from devherd.config.model import Config, Selector
from devherd.settings import COMMON_OPTIONS

HEAD = """\
# Configuration

*Generated from the models that validate the file by `make docs-pages`.*

Every key of the file. With an empty file, or none, every device found is served as its vendor's plugin would.

`devherd config sample` prints a file to start from, `config import FILE` converts another plugin's, `config check
FILE` shows errors, settings without effect and the resulting resources, `config show` the origin of each value,
`config schema` the JSON Schema; `devherd reload` loads the file again, as SIGHUP does.

The file is `/etc/devherd/config.yaml`, or what `--config` or `DEVHERD_CONFIG` names, or what
[a node label selects](kubernetes.md#a-configuration-for-each-kind-of-node), in YAML; a key without a value has its
default. Precedence: option, environment variable, file. An invalid file changes nothing and is reported in the log,
`devherd status`, the page and `devherd_config_last_reload_successful`.

Durations are written like `5s`, `250ms` or `1m30s`; truth values without quotes; paths begin with `/`.

## Top level
"""

MATCH = """\
## What `match` can name

`match` and `exclude` name facts, each with a glob (`*`, `?`, `[0-9]`) or a list of globs of which one must match. All
named facts must match; letter case counts, and a device without the fact does not match. Unknown vendors and facts
are errors. `devherd scan --explain` shows the facts of each device of a host.
"""

MORE = {"health.external": "[Programs of your own](health-programs.md) describes their output and limits."}
"""Pages about sections."""

NO_DEFAULTS = ("", "null", "[]", "{}", "''")
"""Defaults of which nothing is to be said: none, or empty."""

TRUTH = "`true`, `false`"
"""The form of a key whose default shows that it is a truth value."""

ENABLED = "enabled"
"""A key that every vendor has; the page has it once."""

AFTER_FACTS = "Some facts look like this:\n"


def page() -> str:
    """The whole page."""
    top = [key for key in keys_of(Config) if key.section is None]
    parts = [HEAD, _keys([(key.name, key) for key in top], with_options=True)]
    for key in keys_of(Config):
        if key.section is not None:
            parts += _section(key, key.section, (key.name,), 2)
    return "\n".join([*parts, *_facts()])


def _section(key: Key, section: type[BaseModel], path: tuple[str, ...], level: int) -> Iterator[str]:
    """A section, an example, its keys, then the larger sections in it; small ones are in its table."""
    yield f"{'#' * level} `{'.'.join(path)}`\n"
    yield f"{key.description}\n"
    if more := MORE.get(".".join(path)):
        yield f"{more}\n"
    if example := EXAMPLES.get(".".join(path)):
        yield f"```yaml\n{example}```\n"
    rows = [(name, row) for name, row in _rows(section, path) if (path[0], name) != ("vendors", ENABLED)]
    if path == ("vendors",):
        rows = [(f"VENDOR.{ENABLED}", _enabled(section))]
    if rows:
        yield _keys(rows)
    for inner, below in _large(section, path):
        if inner.section is not None:
            yield from _section(inner, inner.section, below, level + 1)


def _rows(section: type[BaseModel], path: tuple[str, ...], above: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys_of(section):
        if ".".join((*path, key.name)) in EXAMPLES:
            continue
        name = f"{above}{key.name}"
        yield name, key
        if key.section and not issubclass(key.section, Selector):
            yield from _rows(key.section, (*path, key.name), f"{above}{key.prefix}")


def _enabled(vendors: type[BaseModel]) -> Key:
    """The key that is alike for all vendors."""
    of_vendors = [key for vendor in keys_of(vendors) if vendor.section for key in keys_of(vendor.section)]
    first, *others = [key for key in of_vendors if key.name == ENABLED]
    assert all(
        (each.form, each.default, each.description) == (first.form, first.default, first.description) for each in others
    )
    return first


def _large(section: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[Key, tuple[str, ...]]]:
    """The sections that have an example, and so a place of their own."""
    for key in keys_of(section):
        below = (*path, key.name)
        if ".".join(below) in EXAMPLES:
            yield key, below


def _keys(rows: list[tuple[str, Key]], *, with_options: bool = False) -> str:
    return "".join(_item(name, key, _options(name) if with_options else "") for name, key in rows)


def _item(name: str, key: Key, options: str) -> str:
    form = "facts" if key.section and issubclass(key.section, Selector) else key.form
    default = dict.fromkeys(NO_DEFAULTS, "").get(key.default, f"default `{key.default}`")
    if key.default == REQUIRED:
        default = REQUIRED
    about = "; ".join(filter(None, ("" if form == TRUTH and default else form, default, options)))
    return f"* `{name}`{f' ({about})' if about else ''}: {key.description}\n"


def _options(name: str) -> str:
    if name not in COMMON_OPTIONS:
        return ""
    return f"`--{name.replace('_', '-')}`, `DEVHERD_{name.upper()}`"


def _facts() -> Iterator[str]:
    yield MATCH
    own = {vendor: facts for vendor, facts in FACTS_OF_VENDOR.items() if facts}
    most = [set(facts) for facts in own.values() if "pci_address" in facts]
    shared = tuple(fact for fact in next(iter(own.values())) if all(fact in facts for facts in most))
    rows = [("every device", _listed(FACTS_OF_EVERY_DEVICE)), ("all below but `generic`", _listed(shared))]
    rows += [
        (f"`{vendor}`", _listed(tuple(fact for fact in facts if fact not in shared))) for vendor, facts in own.items()
    ]
    yield "".join(f"* {vendor}: {facts}\n" for vendor, facts in rows)
    yield AFTER_FACTS
    yield ", ".join(f"`{fact}` like `{forms[0]}`" for fact, forms in FORMS.items()) + ".\n"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
