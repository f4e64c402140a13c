"""docs/commands.md: every command with what it does, and the exit codes. Options are in the help alone."""

from devherd.cli.completion import EXIT_CODES, references

_HEAD = """\
# Commands

*Generated from the same source as `devherd help COMMAND` and the manual page `devherd.1` by `make docs-pages`.*

`devherd help COMMAND` has the options of each and examples; so has the manual page. An error is one line on stderr:
what failed, why, and what to do.

"""
_COMMON = """\
## Common options

`--config FILE`, and one for each key at [the top level of the configuration](configuration.md#top-level), which is
also an environment variable `DEVHERD_<NAME>`. Precedence: option, environment, file, default. Every command accepts
all of them; its help lists those that have an effect.
"""


def page() -> str:
    """The page."""
    listed = "".join(f"* `{one.name}`: {one.summary}\n" for one in references() if not one.is_action)
    codes = "".join(f"* {code}: {text}\n" for code, text in EXIT_CODES.items())
    return (
        f"{_HEAD}{listed}\n## Exit codes\n\n{codes}\n`devherd ctl` ends with the codes of supervisorctl.\n\n{_COMMON}"
    )
