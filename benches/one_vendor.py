"""Settings of a scan that looks for one vendor's devices and no other's."""

import json
from collections.abc import Sequence

from devherd.config import Vendors


def settings(vendor: str = "", generic: Sequence[object] = ()) -> str:
    """Settings of the scan core for a simulated node with one vendor, or without any."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    settings = {"simulated_host": True, "probe_timeout": 2.0, "vendors": {**vendors, "generic": generic}}
    return json.dumps(settings)
