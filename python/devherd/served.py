"""<run-dir>/http/addresses.json: at which of its addresses the exporter serves, and why not at the others.

Written by the exporter, which alone knows.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from devherd import spool


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """As the configuration has it: `ADDRESS:PORT`, or `unix:` and a path."""

    address: str
    refusal: str = ""
    """Why nothing is served there; empty: it is served."""
    cure: str = ""

    def complaint(self) -> str:
        """For where it is not served."""
        return f"not serving {self.address}: {self.refusal} — {self.cure}"


def write(path: Path, addresses: Sequence[Address]) -> None:
    """Put them in place, unless they are there already. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    spool.update(path, json.dumps([asdict(address) for address in addresses]).encode())


def read(path: Path) -> tuple[Address, ...] | None:
    """None where no exporter has said so yet, or another version's way of saying so is not understood."""
    try:
        said = json.loads(path.read_bytes())
        return tuple(Address(**{field.name: str(one[field.name]) for field in fields(Address)}) for one in said)
    except (OSError, ValueError, TypeError, KeyError):
        return None
