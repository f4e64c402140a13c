"""Configurations of the plugins that devherd replaces, translated into devherd's own.

`source` finds out what a text is (a configuration, a list of flags, a manifest with either), `command_line` reads flags
as Go does, and one file a plugin translates: `nvidia`, `generic`, `intel`, `amd`.
"""

from devherd.importers.imported import Imported
from devherd.importers.source import PLUGINS, import_text

__all__ = ["PLUGINS", "Imported", "import_text"]
