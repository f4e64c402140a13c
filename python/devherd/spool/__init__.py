"""The files of the run directory: one writer each, renamed into place, watched by their readers.

proto/spool.proto has the formats, `files` reads and writes them, `identity` distinguishes versions of a file.
"""

from devherd.spool.files import (
    HEALTHY,
    SUFFIX,
    UNHEALTHY,
    SpoolError,
    key_of,
    keys_in,
    path_of,
    read,
    read_all,
    read_or_empty,
    remove,
    replace,
    update,
    write,
)

__all__ = [
    "HEALTHY",
    "SUFFIX",
    "UNHEALTHY",
    "SpoolError",
    "key_of",
    "keys_in",
    "path_of",
    "read",
    "read_all",
    "read_or_empty",
    "remove",
    "replace",
    "update",
    "write",
]
