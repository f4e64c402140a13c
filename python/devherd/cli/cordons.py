"""The cordons of an instance, as commands change them."""

import contextlib
import sys
from collections.abc import Iterator

from devherd import spool
from devherd.errors import UnreachableError
from devherd.health.sources.cordon import Changes, Cordons, NotKeptError
from devherd.settings import Settings


@contextlib.contextmanager
def changing(settings: Settings) -> Iterator[Changes]:
    """The cordoned devices, written at the end. Raises UnreachableError when they cannot be read or written.

    Where they are written, and a boot will undo it, that is printed.
    """
    directory = settings.findings_directory
    try:
        with Cordons(directory, settings.kept_cordons_file).changing() as changes:
            yield changes
    except NotKeptError as error:
        cure = "have the instance run with a --state-dir that can be written"
        print(f"devherd: a boot will undo this — cannot write {error} — {cure}", file=sys.stderr)
    except spool.SpoolError as error:
        cure = f"remove {error.path}, which ends all cordons"
        raise UnreachableError("cannot read the cordons", str(error), cure) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreachableError(f"cannot write the cordons below {directory}", why, "use sudo") from error
