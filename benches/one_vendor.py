"""Settings of a scan that looks for one vendor's devices and no other's."""

import json
from collections.abc import Sequence

from devherd.config import Vendors


def settings(vendor: str = "", generic: Sequence[object] = ()) -> str:
    """As the scan core is told; without a vendor for none of them."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    return json.dumps({"probe_timeout": 2.0, "vendors": vendors, "generic": generic})
