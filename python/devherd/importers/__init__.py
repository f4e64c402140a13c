"""Configurations of the plugins that devherd replaces, translated into devherd's own.

`source` is the entry: it finds out what a text is (a configuration, a list of flags, a manifest with either, the values
of a chart) and whose. `manifest` takes Kubernetes objects apart, `plugin` describes a plugin and how it is started,
`imported` reads flags as Go does and records which settings were translated, `helm_values` makes values of devherd's
chart of them. The other files translate the plugins:
`nvidia` (with `nvidia_file` and `nvidia_operator`), `generic`, `intel`, `amd` (with Xilinx), `rdma`.
"""

from devherd.importers.helm_values import helm_values, merged
from devherd.importers.imported import Imported
from devherd.importers.source import PLUGINS, import_text

__all__ = ["PLUGINS", "Imported", "helm_values", "import_text", "merged"]
