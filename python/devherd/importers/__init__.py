"""Configurations of the plugins that devherd replaces, translated into devherd's own.

`source` finds out what a text is (a configuration, a list of flags, a manifest with either, the values of a chart),
`manifest` takes Kubernetes objects apart, `invocation` and `go_flags` read command lines as the plugins do, and one
file a plugin translates: `nvidia`, `generic`, `intel`, `amd`, `xilinx`, `rdma_shared`, `sriov`. `given` knows which
settings nobody has taken.
"""

from devherd.importers.imported import Imported
from devherd.importers.plugins import PLUGINS
from devherd.importers.source import import_text

__all__ = ["PLUGINS", "Imported", "import_text"]
