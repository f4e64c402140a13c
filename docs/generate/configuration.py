"""docs/configuration.md: every key of the configuration file, from the models that validate it."""

from collections.abc import Iterator

from pydantic import BaseModel
from tables import table

from devherd.config.checks import FACT_EXAMPLES as FORMS
from devherd.config.checks import FACTS_OF_EVERY_DEVICE, FACTS_OF_VENDOR
from devherd.config.describe import EXAMPLES, REQUIRED, Key, keys_of
from devherd.config.model import Config, Selector
from devherd.settings import COMMON_OPTIONS

HEAD = """\
# Configuration

*Generated from the models that validate the file by `make docs-pages`.*

devherd reads `/etc/devherd/config.yaml`, or the file that `--config` or `DEVHERD_CONFIG` names, or the one that
[a node label selects](configuration-by-label.md). It is YAML; every key has a default, and a key without a value has
its default. With an empty file, or none, every device found is served. Precedence: option, environment variable, file.
SIGHUP or `devherd reload` loads the file again; an invalid one changes nothing and is reported in the log,
`devherd status`, the page and `devherd_config_last_reload_successful`.

| command | does |
| --- | --- |
| `devherd config check FILE` | shows errors, settings without effect, and the resulting resources |
| `devherd config show` | prints the effective configuration and the origin of each value |
| `devherd config sample` | prints a file to start from, its keys as comments; `--all`: every key |
| `devherd config schema` | prints the JSON Schema, for editors |
| `devherd config import FILE` | converts the configuration of another plugin |

Durations are written like `5s`, `250ms` or `1m30s`. Truth values are `true` and `false`, without quotes. Paths begin
with `/`.

## Top level
"""

MATCH = """\
## What `match` can name

`match` and `exclude` name facts, each with a glob (`*`, `?`, `[0-9]`) or a list of globs of which one must match. All
named facts must match; letter case counts, and a device without the fact does not match. Unknown vendors and facts are
errors. `devherd scan --explain` shows the facts of each device of a host.
"""

MORE = {"health.external": "[Programs of your own](health-programs.md) describes their output and limits."}
"""Pages about sections."""

AFTER_FACTS = "The form of some facts:\n"


def page() -> str:
    """The whole page."""
    top = [key for key in keys_of(Config) if key.section is None]
    parts = [HEAD, _table([(key.name, key) for key in top], with_options=True)]
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
    rows = [*_rows(section, path)]
    if rows:
        yield _table(rows)
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
            yield from _rows(key.section, (*path, key.name), f"{name}[]." if key.is_list else f"{name}.")


def _large(section: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[Key, tuple[str, ...]]]:
    """The sections that have an example, and so a place of their own."""
    for key in keys_of(section):
        below = (*path, key.name)
        if ".".join(below) in EXAMPLES:
            yield key, below


def _table(rows: list[tuple[str, Key]], *, with_options: bool = False) -> str:
    head = ("key", "value", "default", "what it is", *(("option, variable",) if with_options else ()))
    return table(head, ((*_row(name, key), *([_options(name)] if with_options else [])) for name, key in rows))


def _row(name: str, key: Key) -> tuple[str, str, str, str]:
    form = "facts" if key.section and issubclass(key.section, Selector) else key.form
    default = {"": "", REQUIRED: REQUIRED, "null": "none"}.get(key.default, f"`{key.default}`")
    return f"`{name}`", form, default, key.description


def _options(name: str) -> str:
    if name not in COMMON_OPTIONS:
        return ""
    return f"`--{name.replace('_', '-')}`, `DEVHERD_{name.upper()}`"


def _facts() -> Iterator[str]:
    yield MATCH
    rows = [("every device", _listed(FACTS_OF_EVERY_DEVICE))]
    rows += [(f"`{vendor}`", _listed(facts)) for vendor, facts in FACTS_OF_VENDOR.items() if facts]
    yield table(("vendor", "facts"), rows)
    yield AFTER_FACTS
    yield table(("fact", "looks like"), [(f"`{fact}`", _listed(forms)) for fact, forms in FORMS.items()])


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
